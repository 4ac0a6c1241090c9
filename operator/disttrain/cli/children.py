"""The operator as a child of `disttrain run` and of the one-machine cluster: it never outlives its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path

STOP_SECONDS = 3.0
"""How long it gets to stop by itself. Killing it loses nothing: what it decides is written before it acts."""


def end_with(parent: int) -> None:
    """Makes this process end when `parent`, which started it, has ended, however that came."""
    if sys.platform == "linux":
        from ..local.kubelet.linux import die_with_parent

        die_with_parent(signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def operator_command(kubeconfig: str, parent: str) -> list[str]:
    """The command line of an operator for a cluster on this machine, which ends with the process `parent`."""
    return [
        *(sys.executable, "-P", "-m", "disttrain", "operator"),  # -P: nothing is imported from where the user is
        *("--kubeconfig", kubeconfig, "--listen", "none", "--allot-ports", "--progress-seconds", "2"),
        *("--parent", parent),
    ]


async def start_operator(kubeconfig: Path, log: Path) -> asyncio.subprocess.Process:
    """The real operator, against the cluster of the kubeconfig; its output goes to `log`.

    A session of its own: Ctrl-C at the terminal is for us, who stop it when its work is done.
    """
    with log.open("ab") as file:
        return await asyncio.create_subprocess_exec(
            *operator_command(str(kubeconfig), str(os.getpid())),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


async def stop(process: asyncio.subprocess.Process) -> None:
    """Ends it, gracefully if it is quick about it."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
