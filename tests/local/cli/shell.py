"""The command as a person starts it: a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

DEADLINE = 120.0


def processes(text: str) -> list[int]:
    """Pids of processes whose command line holds the text, ourselves apart."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if text in line:
            found.append(int(entry.name))
    return found


def eventually(what: Callable[[], bool], words: str) -> None:
    """Waits until it holds."""
    end = time.monotonic() + DEADLINE
    while not what():
        assert time.monotonic() < end, words
        time.sleep(0.05)


class Command:
    """A command that runs. Its output, errors too, is collected in `out` and waited for with `until`."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def out(self) -> str:
        """All that it printed so far."""
        return self._output.read_text(errors="replace")

    def until(self, text: str) -> None:
        """Waits for a text in the output."""

        def there() -> bool:
            assert text in self.out or self.process.poll() is None, self.out
            return text in self.out

        eventually(there, f"{text!r} did not come in: {self.out}")

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """Sends it a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code."""
        return self.process.wait(DEADLINE)


class Shell:
    """Starts `disttrain` in a folder; what is still running at the end is killed and fails the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begun: list[Command] = []
        self._open: list[IO[bytes]] = []

    def start(self, *arguments: object, stdin: Path = Path("/dev/null")) -> Command:
        """Starts it and returns at once."""
        output = self.folder / f"output-{len(self._begun)}"
        file = output.open("wb")
        self._open.append(file)
        with stdin.open("rb") as given:
            process = subprocess.Popen(
                [sys.executable, "-m", "disttrain", *map(str, arguments)],
                cwd=self.folder,
                stdin=given,
                stdout=file,
                stderr=file,
            )
        command = Command(process, output)
        self._begun.append(command)
        return command

    def run(self, *arguments: object, code: int = 0) -> str:
        """Runs it to its end; its output. `code` is the exit code that it must have."""
        command = self.start(*arguments)
        assert command.wait() == code, command.out
        return command.out

    def write(self, name: str, text: str) -> Path:
        """A file in the folder."""
        path = self.folder / name
        path.write_text(text)
        return path

    def runs(self) -> list[Path]:
        """The folders of the runs so far, oldest first."""
        found = [path.parent for path in self.folder.glob("disttrain-runs/*/run.json")]
        return sorted(found, key=lambda path: float(self.facts(path)["started"]))

    def facts(self, run: Path) -> dict[str, Any]:
        """What run.json holds."""
        found: dict[str, Any] = json.loads((run / "run.json").read_text())
        return found

    def nothing_left(self) -> None:
        """Waits until no process has this folder in its command line."""
        eventually(lambda: not processes(str(self.folder)), f"still running: {processes(str(self.folder))}")

    def close(self) -> None:
        """Ends what a failed test left."""
        for file in self._open:
            file.close()
        for command in self._begun:
            if command.process.poll() is None:
                command.process.kill()
                command.process.wait()
