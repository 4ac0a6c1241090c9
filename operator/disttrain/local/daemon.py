"""The process behind `cluster.up`: the one-machine cluster and the commands beside it, until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from disttrain.local.cluster import ClusterError, LocalCluster, Options

log = logging.getLogger(__name__)

_STOP_SECONDS = 10.0  # for a command beside the cluster to end after SIGTERM
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds before a command that ended is started again
_HEALTHY_SECONDS = 60.0  # after as long a run the pause begins anew

# Started through this, a command ends with the daemon, however that ends; the setting survives exec.
_BOUND = """
import os, signal, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


async def serve(settings: dict[str, Any], ready: int) -> None:
    """Be the cluster until SIGTERM or SIGINT; writes "ready" to the file descriptor `ready` when it is up."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    folder = Path(settings["state"])
    given = settings["options"]
    options = Options(
        **given
        | {
            "python": Path(given["python"]) if given["python"] else None,
            "maps": {path: Path(target) for path, target in given["maps"].items()},
            "workdir": Path(given["workdir"]),
        }
    )
    async with LocalCluster(folder, options, port=settings["port"]) as cluster:
        why = cluster.kubelet.why_not_isolated
        about = {"pid": os.getpid(), "url": cluster.url, "isolation": f"none: {why}" if why else "namespaces"}
        draft = folder / "daemon.json.new"
        draft.write_text(json.dumps(about))
        draft.replace(folder / "daemon.json")
        words = {"{kubeconfig}": str(cluster.kubeconfig), "{pid}": str(os.getpid())}
        beside = [
            asyncio.create_task(keep_running([_fill(word, words) for word in argv], folder / f"{n}.log"))
            for n, argv in enumerate(settings["commands"])
        ]
        os.write(ready, b"ready")
        os.close(ready)
        await stop.wait()
        # First what makes pods, then the pods.
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


def _fill(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


async def keep_running(argv: list[str], output: Path) -> None:
    """Run a command until cancelled, again whenever it ends; its output goes to the file `output`.

    When cancelled it gets SIGTERM, and SIGKILL if that does not do within seconds.
    """
    loop = asyncio.get_running_loop()
    pause = _FIRST_PAUSE
    while True:
        began = loop.time()
        with output.open("ab") as file:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), *argv),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            except OSError as error:
                log.error("%s cannot be started: %s", argv[0], error)
                return
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        pause = _FIRST_PAUSE if loop.time() - began > _HEALTHY_SECONDS else pause
        log.warning("%s ended with %d; starting it again in %g s (its output: %s)", argv[0], code, pause, output)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def main() -> int:
    """`python -m disttrain.local.daemon SETTINGS FD`, as `cluster.up` starts it."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(serve(json.loads(sys.argv[1]), int(sys.argv[2])))
    except ClusterError as error:
        log.error("%s", error)
        return 1
    except Exception as error:
        log.exception("the one-machine cluster failed")
        log.error("%s", error)  # `up` shows the last line
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
