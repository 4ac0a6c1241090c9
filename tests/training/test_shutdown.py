"""Ending: exit codes, flushes, no hang; signals as a flag. In processes of their own, which need no framework."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from training.launch import clean_environment


def python(body: str) -> subprocess.CompletedProcess[str]:
    script = f"import sys\nfrom disttrain_training.shutdown import *\nimport disttrain_training.shutdown as s\n{body}"
    return subprocess.run(
        [sys.executable, "-c", script], env=clean_environment(), capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("main", "code", "stderr"),
    [
        ("lambda: None", 0, ""),
        ("lambda: 143", 143, ""),
        ("lambda: sys.exit()", 0, ""),
        ("lambda: sys.exit(7)", 7, ""),
        ("lambda: sys.exit('why')", 1, "why\n"),
        ("lambda: int('x')", 1, "ValueError: invalid literal"),
        ("lambda: (_ for _ in ()).throw(Refused('what would do'))", 1, "error: what would do\n"),
        ("lambda: (_ for _ in ()).throw(KeyboardInterrupt)", 130, ""),
    ],
)
def test_exit_codes(main: str, code: int, stderr: str) -> None:
    done = python(f"run({main})")
    assert done.returncode == code
    assert stderr in done.stderr
    assert ("Traceback" in done.stderr) == ("ValueError" in stderr)


def test_everything_is_flushed_the_last_registered_first() -> None:
    done = python(
        "import atexit\n"
        "atexit.register(lambda: print('exit handler'))\n"
        "at_exit(lambda: print('first'))\n"
        "at_exit(lambda: print('second'))\n"
        "run(lambda: print('no newline at the end of this', end=' '))"
    )
    assert done.returncode == 0
    assert done.stdout == "no newline at the end of this second\nfirst\nexit handler\n"


def test_a_flush_that_fails_fails_the_process_and_the_others_still_run() -> None:
    done = python("at_exit(lambda: print('written'))\nat_exit(lambda: 1 / 0)\nrun(lambda: 0)")
    assert done.returncode == 1
    assert done.stdout == "written\n"
    assert "ZeroDivisionError" in done.stderr


def test_a_flush_that_hangs_is_not_waited_for() -> None:
    began = time.monotonic()
    done = python("import time\nat_exit(lambda: time.sleep(60))\nprint('kept')\ns.leave(0, grace=0.2)")
    assert time.monotonic() - began < 30
    assert done.returncode == 1
    assert done.stdout == "kept\n"
    assert "is not done after 0.2 s; leaving" in done.stderr


def test_nothing_of_the_interpreter_is_finalized() -> None:
    """A thread that runs on is the harmless stand-in for gloo's: neither waited for nor torn down."""
    done = python("import threading, time\nthreading.Thread(target=lambda: time.sleep(60)).start()\nrun(lambda: 5)")
    assert done.returncode == 5


def test_a_signal_is_a_flag() -> None:
    done = python(
        "import os, signal, time\n"
        "stop = StopRequest()\n"
        "stop.listen()\n"
        "assert not stop.signal\n"
        "assert stop.exit_code == 143, 'of a process whose peer was asked'\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "began = time.monotonic()\n"
        "stop.wait(60)\n"
        "assert time.monotonic() - began < 30\n"
        "run(lambda: stop.exit_code)"
    )
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")


def test_the_second_interrupt_is_at_once() -> None:
    done = python(
        "import os, signal\n"
        "stop = StopRequest()\n"
        "stop.listen()\n"
        "def main():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print(stop.exit_code)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('never')\n"
        "run(main)"
    )
    assert (done.returncode, done.stdout) == (130, "130\n")


def test_a_reader_that_went_away_does_not_matter() -> None:
    command = "from disttrain_training.shutdown import run; run(lambda: print('x' * 10) or 3)"
    process = subprocess.Popen([sys.executable, "-c", command], env=clean_environment(), stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=60) == 3


def test_what_every_framework_uses_needs_none_and_not_the_operator() -> None:
    done = python(
        "import pkgutil, importlib, disttrain_training as package\n"
        "for module in pkgutil.iter_modules(package.__path__):\n"
        "    if not module.ispkg:\n"
        "        importlib.import_module(f'disttrain_training.{module.name}')\n"
        "        print(module.name)\n"
        "assert not {'torch', 'sklearn', 'disttrain'} & set(sys.modules)"
    )
    assert done.returncode == 0, done.stderr
    assert {"checkpoint", "data", "progress", "sampling", "shutdown"} <= set(done.stdout.split())
