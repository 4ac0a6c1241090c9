"""Starts operators for the tests: each a process of its own, forked from this one, which has imported everything.

An operator's start costs a second of imports; the walk over all the calls between which it may die needs fifty. Reads
one JSON line an operator, `[log file, word, ...]`, and answers with its process id. An operator ends with this process,
and this process with its standard input.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from disttrain import cli
from disttrain.cli import operator  # noqa: F401 -- imported for the operators to come
from disttrain.cluster.host import import_kopf
from disttrain.main import run  # noqa: F401 -- the same


def serve() -> None:
    """Forks operators until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody is left to wait for
    for line in sys.stdin:
        log, *words = json.loads(line)
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            _operate(log, [*words, "--parent", str(parent)])
        print(child, flush=True)


def _operate(log: str, words: list[str]) -> None:
    """Becomes an operator."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = 1
    try:
        code = cli.main(["operator", *words])
    finally:
        os._exit(code)


if __name__ == "__main__":
    import_kopf()
    serve()
