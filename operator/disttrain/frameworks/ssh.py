"""SSH among the pods of a job, for launchers that start their processes with it: what is in /etc/disttrain, and sshd.

One ConfigMap a round lists the hosts and holds the scripts; one Secret a job holds the keys, which the control loop
makes (`constants.ANNOTATION_GENERATE`). A projected volume shows both as one folder. Nothing is copied and no image is
asked for more than OpenSSH's client and server, as root or as another user, on any port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..api import names
from ..api.constants import (
    ANNOTATION_GENERATE,
    GENERATE_SSH_KEYS,
    LABEL_JOB,
    LABEL_JOB_UID,
    SSH_AUTHORIZED_KEYS,
    SSH_HOST_KEY,
    SSH_KEY,
    SSH_KNOWN_HOSTS,
)
from ..api.plan import Manifest
from ..api.pods import Slot
from .base import World
from .objects import owner

FOLDER = "/etc/disttrain"
CONFIG = f"{FOLDER}/ssh_config"
VOLUME = "disttrain"
CLIENT_VOLUME = "disttrain-ssh-client"
CLIENT_FOLDER = "/etc/ssh/ssh_config.d"
"""Read by ssh itself, through an Include in the ssh_config of Debian, Ubuntu, Fedora, RHEL and Alpine."""
KEY_MODE = 0o400
"""For root, whose key ssh and sshd refuse if others may read it. With an fsGroup the kubelet makes it 0440: another
user reads it by its group, and the refusal does not apply to files of another owner."""
START_SECONDS = 300
"""How long sshd may take to listen."""

WAIT_FOR_HOST = """\
#!/bin/sh
# ssh gives up at once on a name that it cannot resolve, and DNS may hear of a pod late: ssh_config has this run before.
command -v getent >/dev/null 2>&1 || exit 0
tries=0
until getent hosts "$1" >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -ge 60 ]; then
        echo "disttrain: $1 has not resolved for a minute" >&2
        exit 1
    fi
    sleep 1
done
"""
SSHD = f"""\
#!/bin/sh
# Becomes sshd, on port $DISTTRAIN_SSH_PORT, as any user. Sessions get the environment of this container.
set -eu
fail() {{
    echo "disttrain: $1" >&2
    exit 126
}}
PATH=$PATH:/usr/sbin:/usr/local/sbin:/sbin
if ! sshd=$(command -v sshd); then
    echo "disttrain: there is no sshd: put the package openssh-server into the image (one machine: onto it)" >&2
    exit 127
fi
id -un >/dev/null 2>&1 || fail "user $(id -u) has no line in /etc/passwd, which ssh and sshd need: add it in the image"
[ -r {FOLDER}/{SSH_HOST_KEY} ] || fail "user $(id -u) may not read the job's SSH keys: \
set securityContext.runAsUser to $(id -u) in the template's spec"
if [ "$(id -u)" = 0 ]; then
    # sshd locks the process that talks to strangers in there; no package but Debian's makes it at run time.
    mkdir -p -m 0755 /run/sshd || fail "sshd as root needs the folder /run/sshd, which cannot be made"
fi
echo "disttrain: sshd listens on port $DISTTRAIN_SSH_PORT"
umask 077
environment=$(mktemp /dev/shm/disttrain-environment.XXXXXX)
export -p >"$environment"
exec "$sshd" -D -e -f {FOLDER}/sshd_config -p "$DISTTRAIN_SSH_PORT" \\
    -o "ForceCommand=/bin/sh {FOLDER}/session.sh $environment"
"""
SESSION = """\
#!/bin/sh
# A session in the environment of the container, which the file $1 restores. (sshd's SetEnv cannot carry line breaks.)
. "$1"
cd "$PWD" 2>/dev/null || :
if [ -n "${SSH_ORIGINAL_COMMAND:-}" ]; then
    exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
fi
exec "${SHELL:-/bin/sh}" -l
"""
SSHD_CONFIG = f"""\
HostKey {FOLDER}/{SSH_HOST_KEY}
AuthorizedKeysFile {FOLDER}/{SSH_AUTHORIZED_KEYS}
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowTcpForwarding no
AllowAgentForwarding no
X11Forwarding no
PrintMotd no
# A launcher connects as often as it has processes to start, all at once.
MaxStartups 1000
MaxSessions 1000
# A launcher that vanished without a word is noticed, and its processes end.
ClientAliveInterval 15
ClientAliveCountMax 4
"""


def client_config(world: World, hosts: Sequence[Slot]) -> str:
    """ssh_config: never a prompt, the one host key of this job's pods, and patience while they start."""
    ports = ""
    if world.shared:
        ports = "".join(f"Host {world.address(host)}\n    Port {world.port(host)}\n" for host in hosts)
    namespace, job = world.job.key
    domains = (
        f"*.{names.service(job)}{rest}" for rest in ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.*")
    )
    return f"""\
{ports}Match host {",".join(domains)} exec "/bin/sh {FOLDER}/wait_for_host.sh %h"
    Port {world.first_port}
    IdentityFile {FOLDER}/{SSH_KEY}
    IdentitiesOnly yes
    UserKnownHostsFile {FOLDER}/{SSH_KNOWN_HOSTS}
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectionAttempts 30
    ConnectTimeout 10
    ServerAliveInterval 15
    ServerAliveCountMax 4
    LogLevel ERROR
"""


def objects(world: World, hosts: Sequence[Slot], files: Mapping[str, str]) -> list[Manifest]:
    """The round's ConfigMap, with `files` beside what SSH needs, and the job's Secret."""
    # Each probe of the port is an error to sshd, so that at other levels its log is full of them.
    level = "VERBOSE" if world.job.spec.debug else "FATAL"
    data = {
        **files,
        "ssh_config": client_config(world, hosts),
        "sshd_config": SSHD_CONFIG + f"LogLevel {level}\n",
        "sshd.sh": SSHD,
        "session.sh": SESSION,
        "wait_for_host.sh": WAIT_FOR_HOST,
    }
    config = _manifest(world, "ConfigMap", names.hosts(world.job.metadata.name, _round(world)))
    keys = _manifest(world, "Secret", names.ssh_keys(world.job.metadata.name))
    keys["metadata"]["annotations"] = {ANNOTATION_GENERATE: GENERATE_SSH_KEYS}
    return [{**config, "immutable": True, "data": data}, {**keys, "type": "Opaque"}]


def _manifest(world: World, kind: str, name: str) -> Manifest:
    job = world.job
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace,
            "labels": {LABEL_JOB: job.metadata.name, LABEL_JOB_UID: job.metadata.uid},
            "ownerReferences": owner(job),
        },
    }


def _round(world: World) -> int:
    return max(world.rounds.values())


def mount(world: World, spec: dict[str, Any], home: str | None, scripts: Sequence[str]) -> None:
    """Gives the folder to every container, and ssh its configuration: the whole machine's, or `home`'s alone."""
    config = names.hosts(world.job.metadata.name, _round(world))
    listed = [*scripts, "ssh_config", "sshd_config", "sshd.sh", "session.sh", "wait_for_host.sh"]
    files = [{"key": key, "path": key, "mode": 0o555 if key.endswith(".sh") else 0o444} for key in listed]
    private = (SSH_KEY, SSH_HOST_KEY)
    keys = [
        {"key": key, "path": key, "mode": KEY_MODE if key in private else 0o444}
        for key in (*private, SSH_AUTHORIZED_KEYS, SSH_KNOWN_HOSTS)
    ]
    sources = [
        {"configMap": {"name": config, "items": files}},
        {"secret": {"name": names.ssh_keys(world.job.metadata.name), "items": keys}},
    ]
    client = {"name": config, "items": [{"key": "ssh_config", "path": "config" if home else "disttrain.conf"}]}
    spec["volumes"] = [
        *(spec.get("volumes") or []),
        {"name": VOLUME, "projected": {"defaultMode": 0o444, "sources": sources}},
        {"name": CLIENT_VOLUME, "configMap": {**client, "defaultMode": 0o444}},
    ]
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        container["volumeMounts"] = [
            *(container.get("volumeMounts") or []),
            {"name": VOLUME, "mountPath": FOLDER, "readOnly": True},
            {
                "name": CLIENT_VOLUME,
                "mountPath": f"{home.rstrip('/')}/.ssh" if home else CLIENT_FOLDER,
                "readOnly": True,
            },
        ]
    _share_keys(spec)


def _share_keys(spec: dict[str, Any]) -> None:
    """Gives the keys to the user of a pod that does not run as root, by a group."""
    if may_be_root(spec):
        return
    context = spec.setdefault("securityContext", {})
    if "fsGroup" not in context:
        main = (spec.get("containers") or [{}])[0].get("securityContext") or {}
        both = {**context, **main}
        context["fsGroup"] = both.get("runAsGroup") or both.get("runAsUser") or 1000
        # Else the kubelet would walk through every file of the checkpoints at each start.
        context.setdefault("fsGroupChangePolicy", "OnRootMismatch")


def may_be_root(spec: Mapping[str, Any]) -> bool:
    """Whether the main container may run as root, as far as the template says."""
    main = (spec.get("containers") or [{}])[0].get("securityContext") or {}
    both = {**(spec.get("securityContext") or {}), **main}
    return not both.get("runAsUser") and not both.get("runAsNonRoot")


def serve(container: dict[str, Any], port: int) -> None:
    """Makes a container run sshd, Ready once it listens."""
    container["command"] = ["/bin/sh", f"{FOLDER}/sshd.sh"]
    container.pop("args", None)
    listens = {"tcpSocket": {"port": port}}
    if "readinessProbe" not in container:
        container["readinessProbe"] = {**listens, "periodSeconds": 10}
        # Seen within a second of its start, and then left in peace.
        container.setdefault("startupProbe", {**listens, "periodSeconds": 1, "failureThreshold": START_SECONDS})
