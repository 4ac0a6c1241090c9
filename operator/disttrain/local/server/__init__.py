"""A Kubernetes API server for one machine: what the operator, the command and plain kubectl need of one."""

from __future__ import annotations

from disttrain.local.server.app import ApiServer
from disttrain.local.server.faults import Entry, Faults, Rule
from disttrain.local.server.logs import LogFiles, LogSource

__all__ = ["ApiServer", "Entry", "Faults", "LogFiles", "LogSource", "Rule"]
