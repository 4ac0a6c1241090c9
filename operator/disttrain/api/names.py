"""Names that we give. A job's name is a DNS-1035 label of at most 63 characters (admission), so that all of these hold:
a Service's name and a label's value are at most 63 characters, a pod's at most 253, a host name's label at most 63.
"""

from __future__ import annotations


def service(job: str) -> str:
    """The job's headless Service."""
    return job


def hostname(role: str, index: int) -> str:
    """Host name of a slot's pod; with the Service as subdomain it makes the pod's address."""
    return f"{role}-{index}"


def address(namespace: str, job: str, role: str, index: int) -> str:
    """A slot's DNS name. It outlives the pod in the slot and holds no cluster domain."""
    return f"{hostname(role, index)}.{service(job)}.{namespace}.svc"


def pod(job: str, role: str, index: int, round_: int) -> str:
    """Name of a slot's pod. A later round's differs, so that a pod that is stuck Terminating never holds it up."""
    return f"{job}-{role}-{index}" + (f"-r{round_}" if round_ > 1 else "")
