"""The real ssh and sshd with the files of a job as a pod has them: as root and as another user, on any port."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import job, world_of

from disttrain.cluster.keys import ssh_keys
from disttrain.frameworks import FRAMEWORKS

PATH = os.environ["PATH"] + ":/usr/sbin"
LACKING = [name for name in ("ssh", "sshd", "unshare", "setpriv") if not shutil.which(name, path=PATH)]
pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0, reason="puts files into /etc of a namespace: root"
    ),
    pytest.mark.skipif(
        bool(LACKING) and not os.environ.get("CI"),
        reason=f"needs {', '.join(LACKING)} (Debian: openssh-server openssh-client util-linux)",
    ),
]
HOST = "worker-0.pi.team.svc"
INSIDE = """
set -e
mount -t tmpfs -o mode=755 tmpfs /mnt
cp -a /etc /mnt
mount --bind /mnt/etc /etc
cp "$FILES"/hosts "$FILES"/passwd /etc
mkdir -p /etc/disttrain
cp -a "$FILES"/disttrain/. /etc/disttrain
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
cd /
exec setpriv --reuid "$WHO" --regid "$WHO" --clear-groups "$@"
"""
"""In a mount namespace: becomes a pod as far as ssh can see, and the user."""


class Place:
    """The files of one job, and who runs in its pods."""

    def __init__(self, folder: Path, user: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.files = folder
        self.user = user
        world = world_of(job({"framework": "mpi", "mpi": {"sshPort": self.port}}, workers=1, name="pi"))
        config, _ = FRAMEWORKS["mpi"].objects(world)
        mounted = folder / "disttrain"
        mounted.mkdir()
        for name, text in config["data"].items():
            (mounted / name).write_text(text)
        for name, key in ssh_keys().items():
            file = mounted / name
            file.write_bytes(key)
            # As the kubelet shows a Secret's file: root's, and with an fsGroup readable by that group.
            os.chown(file, 0, user)
            file.chmod(0o440 if user else 0o400)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n127.0.0.1 {HOST}\n")
        own = f"someone:x:{user}:{user}::/:/bin/bash\n" if user else "root:x:0:0::/root:/bin/bash\n"
        system = "sshd:x:105:65534::/run/sshd:/usr/sbin/nologin\n"
        (folder / "passwd").write_text(own + system)

    def command(self, *words: str) -> list[str]:
        return ["unshare", "--mount", "sh", "-c", INSIDE, "sh", *words]

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": PATH, "FILES": str(self.files), "WHO": str(self.user), "DISTTRAIN_SSH_PORT": str(self.port)}

    @contextlib.contextmanager
    def sshd(self, **env: str) -> Iterator[None]:
        """A worker."""
        command = self.command("/bin/sh", "/etc/disttrain/sshd.sh")
        with (
            (self.files / "sshd.log").open("wb") as log,
            subprocess.Popen(command, env=self.env | env, stderr=log) as it,
        ):
            try:
                yield
            finally:
                it.terminate()

    def ssh(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A launcher's ssh, which tries until sshd listens."""
        command = self.command("ssh", "-F", "/etc/disttrain/ssh_config", *words)
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(params=[0, 1000], ids=["root", "user 1000"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.param)


def test_a_session_without_a_prompt(place: Place) -> None:
    with place.sshd(GREETING="it's me", LD_LIBRARY_PATH="/opt/lib"):
        done = place.ssh(HOST, 'echo "$(id -u) $GREETING $LD_LIBRARY_PATH"; exit 5')
    log = (place.files / "sshd.log").read_text()
    assert (done.stdout, done.stderr, done.returncode) == (f"{place.user} it's me /opt/lib\n", "", 5), log


def test_another_hosts_key_is_not_accepted(place: Place) -> None:
    keys = ssh_keys()
    (place.files / "disttrain" / "known_hosts").write_bytes(keys["known_hosts"])
    with place.sshd():
        done = place.ssh(HOST, "true")
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr or "HOST IDENTIFICATION HAS CHANGED" in done.stderr


def test_a_strangers_key_is_refused(place: Place) -> None:
    with place.sshd():
        assert place.ssh(HOST, "true").returncode == 0
        stranger = place.files / "disttrain" / "id_ed25519"
        mode = stranger.stat().st_mode
        stranger.write_bytes(ssh_keys()["id_ed25519"])
        stranger.chmod(mode)
        done = place.ssh(HOST, "true")
    assert "Permission denied" in done.stderr


def test_a_user_that_may_not_read_the_keys_is_told_the_cure(tmp_path: Path) -> None:
    place = Place(tmp_path, 1000)
    for name in ("ssh_host_ed25519_key", "id_ed25519"):
        (place.files / "disttrain" / name).chmod(0o400)
    done = subprocess.run(
        place.command("/bin/sh", "/etc/disttrain/sshd.sh"), env=place.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 126
    assert "set securityContext.runAsUser to 1000 in the template's spec" in done.stderr


def test_a_user_without_a_name_is_told_the_cure(tmp_path: Path) -> None:
    place = Place(tmp_path, 1000)
    (place.files / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    done = subprocess.run(
        place.command("/bin/sh", "/etc/disttrain/sshd.sh"), env=place.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 126
    assert "user 1000 has no line in /etc/passwd" in done.stderr


def test_a_name_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    """The script, with a getent that knows the name at the third try."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "getent").write_text(f'#!/bin/sh\necho x >> {tmp_path}/tries\n[ "$(wc -l < {tmp_path}/tries)" -ge 3 ]\n')
    (tools / "sleep").write_text("#!/bin/sh\n")
    for tool in tools.iterdir():
        tool.chmod(0o755)
    script = FRAMEWORKS["mpi"].objects(world_of(job({"framework": "mpi"})))[0]["data"]["wait_for_host.sh"]
    env = {"PATH": f"{tools}:{PATH}"}
    assert subprocess.run(["sh", "-c", script, "sh", HOST], env=env, check=False).returncode == 0
    (tools / "getent").write_text("#!/bin/sh\nexit 2\n")
    never = subprocess.run(["sh", "-c", script, "sh", HOST], env=env, capture_output=True, text=True, check=False)
    assert (never.returncode, never.stderr) == (1, f"disttrain: {HOST} has not resolved for a minute\n")
