"""Names that we give. A job's name is a DNS-1035 label of at most 63 characters (admission), so that all of these hold:
a Service's name and a label's value are at most 63 characters, a pod's at most 253, a host name's label at most 63.
"""

from __future__ import annotations


def service(job: str) -> str:
    """The job's headless Service."""
    return job


def hostname(role: str, index: int, round_: int = 1) -> str:
    """Host name of a slot's pod; with the Service as subdomain it makes the pod's address. It outlives the pod in the
    slot, unless a later `round_` is given."""
    return f"{role}-{index}" + _later(round_)


def address(namespace: str, job: str, role: str, index: int, round_: int = 1) -> str:
    """A slot's DNS name, which holds no cluster domain. `round_`: as for `hostname`."""
    return f"{hostname(role, index, round_)}.{service(job)}.{namespace}.svc"


def pod(job: str, role: str, index: int, round_: int) -> str:
    """Name of a slot's pod. A later round's differs, so that a pod that is stuck Terminating never holds it up."""
    return f"{job}-{role}-{index}" + _later(round_)


def hosts(job: str, round_: int) -> str:
    """The ConfigMap that lists a round's hosts."""
    return f"{job}-hosts" + _later(round_)


def ssh_keys(job: str) -> str:
    """The Secret with the job's SSH keys, the same in all rounds."""
    return f"{job}-ssh"


def _later(round_: int) -> str:
    return f"-r{round_}" if round_ > 1 else ""
