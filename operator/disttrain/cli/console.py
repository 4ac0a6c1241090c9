"""What all subcommands share of speaking to people and to scripts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class CliError(Exception):
    """What stopped the command, in one plain sentence that says what would do. `code` is the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def fail(message: str) -> None:
    """Says on stderr what went wrong."""
    print(f"disttrain: {message}", file=sys.stderr, flush=True)


def usage(message: str) -> CliError:
    """The error for wrong usage that argparse cannot see."""
    return CliError(message, 2)


def output_option(parser: argparse.ArgumentParser, *choices: str, default: str = "text") -> None:
    """Adds `--output`."""
    parser.add_argument("-o", "--output", choices=(default, *choices), default=default, help=f"default: {default}")


def mapping(text: str) -> tuple[str, Path]:
    """`/app=./src`: the path that pods see, and what is there."""
    there, equals, here = text.partition("=")
    if not equals or not there.startswith("/") or not here:
        raise argparse.ArgumentTypeError(f"{text!r} is not PATH=HERE with an absolute PATH, such as /app=./src")
    path = Path(here).resolve()
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text!r}: there is no {here} here")
    return there, path


def print_json(document: Any, *, lines: bool = False) -> None:
    """The document for a script, on several lines unless `lines`, which keeps it on one."""
    print(json.dumps(document, indent=None if lines else 2, ensure_ascii=False), flush=True)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as kubectl aligns them, without colours; the first row has the headings."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def span(seconds: float) -> str:
    """A duration in short, as kubectl prints ages: `42s`, `5m10s`, `3h`, `12d`."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 600:
        return f"{whole // 60}m{whole % 60}s" if whole % 60 else f"{whole // 60}m"
    if whole < 3 * 3600:
        return f"{whole // 60}m"
    if whole < 48 * 3600:
        return f"{whole // 3600}h"
    return f"{whole // 86400}d"
