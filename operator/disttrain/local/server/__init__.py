"""A Kubernetes API server for one machine: what the operator, the command and plain kubectl need of one.

What it leaves out, and answers with a Status that says so: protobuf bodies and server-side apply (415), exec, attach
and port-forward (501), times of log lines (501). What it does not do at all: rights (whoever has the token may do all),
admission by webhooks and quotas, service accounts and priority classes (any name is taken), conversion between the
versions of a CRD (only its storage version is served), workload controllers, and most of the checks of built-in objects
beyond their fields, their types and what `pods.py` lists.
"""

from __future__ import annotations

from disttrain.local.server.app import ApiServer
from disttrain.local.server.faults import Entry, Faults, Rule
from disttrain.local.server.logs import LogFiles, LogSource

__all__ = ["ApiServer", "Entry", "Faults", "LogFiles", "LogSource", "Rule"]
