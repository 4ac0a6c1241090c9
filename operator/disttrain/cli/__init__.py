"""The command `disttrain`, which is a kubectl plugin too: `kubectl disttrain`.

Each subcommand is a module of this package with two functions: `arguments(parser)` says what it takes,
`command(options)` does it and returns the exit code. Its docstring is its help. Only the module that is asked for is
imported, so that `version` is quick.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted with Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from .console import CliError, fail

COMMANDS = {
    "run": "run a job on this machine, from its manifest to its end",
    "local": "start, stop or look at the one-machine cluster",
    "operator": "run the operator, in or out of a cluster",
    "get": "list jobs, or tell all about one",
    "logs": "print the log of one of a job's pods",
    "version": "print the version",
}

EXAMPLES = """\
examples:
  disttrain run job.yaml                    train on this machine; no cluster is needed
  disttrain run job.yaml --resume           go on from the last run's checkpoint
  disttrain local up                        a cluster on this machine for kubectl
  disttrain get                             jobs of the current namespace
  disttrain logs digits --rank 1 -f         follow the pod of rank 1

`disttrain COMMAND --help` tells more of each.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code. Wrong usage raises SystemExit(2), as argparse does."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(given).parse_args(given)
    try:
        code: int = options.module.command(options)
    except CliError as error:
        fail(str(error))
        return error.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        sys.stderr.close()
        return 1
    return code


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    parser = argparse.ArgumentParser(
        prog="kubectl disttrain" if plugin else "disttrain",
        description="Distributed training from one manifest, on Kubernetes or on this machine.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        if name in given:
            module = import_module(f".{name}", __name__)
            sub.description = module.__doc__
            module.arguments(sub)
            sub.set_defaults(module=module)
    return parser
