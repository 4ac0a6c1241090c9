"""Prints the version of disttrain, of the resource that it serves and of the Python under it."""

from __future__ import annotations

import argparse
import platform

from .. import __version__
from ..api.constants import API_VERSION
from .console import output_option, print_json


def arguments(parser: argparse.ArgumentParser) -> None:
    """What `disttrain version` takes."""
    output_option(parser, "json")


def command(options: argparse.Namespace) -> int:
    """`disttrain version`."""
    facts = {"disttrain": __version__, "api": API_VERSION, "python": platform.python_version()}
    if options.output == "json":
        print_json(facts)
    else:
        print(f"disttrain {facts['disttrain']} ({facts['api']}, Python {facts['python']})")
    return 0
