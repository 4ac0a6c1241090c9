"""What a supervisor's child does between fork and exec: it becomes a container's init, its main process or a probe.

Standard library only. Each function returns the exit code of a child that did not become another program.
"""

# pathlib costs more to import than all the rest here.
from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from typing import Any

from disttrain.local.kubelet import linux, rootfs

if sys.platform == "linux":
    die_with_parent = linux.die_with_parent
else:

    def die_with_parent(signal: int) -> None: ...


def container(spec: dict[str, Any], output: int, status: int, life: int, *, isolated: bool) -> int:
    """Become a container, which writes to `output`; why it did not start goes to `status`.

    `life` is a pipe that ends with the supervisor.
    """
    try:
        os.setsid()
        die_with_parent(signal.SIGKILL)
        os.set_blocking(life, False)
        with contextlib.suppress(BlockingIOError):
            os.read(life, 1)
            return 125  # end of file: the supervisor is dead already
        if not isolated:
            return _execute(spec["argv"], spec["env"], spec["cwd"], output, status)
        return _init(spec, output, status)
    except OSError as error:
        os.write(status, words(error).encode())
        return 128


def _init(spec: dict[str, Any], output: int, status: int) -> int:
    """Be PID 1 of the container's PID namespace, around its main process."""
    linux.unshare(linux.CLONE_NEWNS)
    rootfs.enter(spec["staging"], [rootfs.Mount(*mount) for mount in spec["mounts"]])
    main = os.fork()
    if not main:
        code = 128
        try:
            os.setsid()
            code = _execute(spec["argv"], spec["env"], spec["cwd"], output, status)
        finally:
            os._exit(code)

    def hand_on(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(main, signal.SIGTERM)

    signal.signal(signal.SIGTERM, hand_on)
    os.close(output)
    os.close(status)  # last: the container counts as started from here on, and may be signalled
    while True:
        ended, status = os.wait()
        if ended == main:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def probe(spec: dict[str, Any], pid: int, argv: list[str], *, isolated: bool) -> int:
    """Become a command in the container whose first process is `pid`, with the container's environment."""
    null = os.open(os.devnull, os.O_RDWR)
    if not isolated:
        os.setsid()
        return _execute(argv, spec["env"], spec["cwd"], null, null)
    linux.setns(os.pidfd_open(pid), linux.CLONE_NEWNS | linux.CLONE_NEWPID)
    # A process stays in its PID namespace for life; its children are in the new one.
    inside = os.fork()
    if not inside:
        code = 126
        try:
            die_with_parent(signal.SIGKILL)
            os.setsid()
            code = _execute(argv, spec["env"], spec["cwd"], null, null)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(inside, 0)[1])
    return code if code >= 0 else 128 - code


def _execute(argv: list[str], env: dict[str, str], cwd: str, output: int, status: int) -> int:
    """Become the program; on failure write why to `status` and return what the child is to exit with."""
    try:
        for number in signal.valid_signals():
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            os.chdir(cwd)
        except OSError as error:
            os.write(status, f"chdir to the working directory {cwd}: {error.strerror}".encode())
            return 126
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        why = "executable file not found in $PATH" if missing and "/" not in argv[0] else (error.strerror or "").lower()
        os.write(status, f'exec: "{argv[0]}": {why}'.encode())
        return 127
    return 127


def words(error: OSError) -> str:
    """An error without its number."""
    return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
