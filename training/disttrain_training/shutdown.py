"""Ending a training process: in time, with what was registered flushed, and without Python's own finalization.

Why not just return from main: the threads of PyTorch's gloo backend outlive `destroy_process_group()`. One that lets
go of a Python object while the interpreter finalizes is ended by it, and C++ then aborts the whole process
("terminate called without an active exception", SIGABRT): a finished job counts as failed, in about 3 of 100 runs on
a busy machine. So the last act here is `os._exit`, after the flushes that Python would have done. Threads are not
waited for: what must still finish is registered with `at_exit`.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

_callbacks: list[Callable[[], object]] = []


class Refused(Exception):
    """An error whose message is for a person and says what would do: printed as it is, without a traceback. Exit code
    1.
    """


def at_exit(callback: Callable[[], object]) -> Callable[[], object]:
    """Register what must be flushed or closed before the process ends; the last registered runs first."""
    _callbacks.append(callback)
    return callback


def run(main: Callable[[], int | None]) -> NoReturn:
    """Run `main` and leave with its exit code; with 1 after an exception, whose traceback is printed. Never returns."""
    code = 1
    try:
        code = main() or 0
    except SystemExit as exit_:
        code = _exit_code(exit_)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    leave(code)


def leave(code: int, *, grace: float = 30.0) -> NoReturn:
    """Run the registered callbacks and Python's own exit handlers, flush, and end the process with `code`.

    A callback that fails, or is not done within `grace` seconds, turns a 0 into a 1: something was not written.
    """
    watchdog = threading.Timer(grace, _give_up, (code, grace))
    watchdog.daemon = True
    watchdog.start()
    while _callbacks:
        try:
            _callbacks.pop()()
        except BaseException:
            traceback.print_exc()
            code = code or 1
    atexit._run_exitfuncs()  # logging, open loggers of other libraries; prints the errors of handlers itself
    _flush()
    os._exit(code)


class StopRequest:
    """SIGTERM and SIGINT as a flag that the training loop looks at between steps. The second SIGINT interrupts at
    once.
    """

    def __init__(self) -> None:
        self.signal = 0
        """The signal's number, 0 while none came."""

    def listen(self) -> None:
        """From now on the signals only set the flag. Before the world is joined they better end the process at once."""
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)

    def wait(self, seconds: float) -> None:
        """Sleep, but no longer than until a stop is asked for."""
        end = time.monotonic() + seconds
        while not self.signal and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))

    @property
    def exit_code(self) -> int:
        """128 + the signal; of SIGTERM (143) when it was a peer that was asked to stop."""
        return 128 + (self.signal or signal.SIGTERM)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.signal = signum
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit_code(exit_: SystemExit) -> int:
    if exit_.code is None:
        return 0
    if isinstance(exit_.code, int):
        return exit_.code
    print(exit_.code, file=sys.stderr)
    return 1


def _give_up(code: int, grace: float) -> NoReturn:
    print(f"error: what was registered to run at the end is not done after {grace:g} s; leaving", file=sys.stderr)
    _flush()
    os._exit(code or 1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # a closed stream, a reader that went away
            pass
