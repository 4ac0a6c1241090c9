"""Makes dist/install.yaml of the chart, for people without Helm: `python charts/install.py HELM` prints it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CHART = Path(__file__).parent / "disttrain"
NAMESPACE = "disttrain-system"
HEAD = f"""\
# Generated from charts/disttrain by `make dist`: do not edit. To install, and later to upgrade:
#
#     kubectl apply --server-side -f install.yaml
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""
OF_HELM = re.compile(
    r"^ +(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n|^  annotations:\n    helm\.sh/resource-policy: keep\n"
    r"|^# (Source|Generated).*\n",
    re.MULTILINE,
)
"""What only Helm makes use of."""


def manifest(helm: str) -> str:
    """The chart with its default values. Raises CalledProcessError."""
    words = (helm, "template", "disttrain", str(CHART), "--namespace", NAMESPACE)
    text = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    return HEAD + re.sub(r"\n{2,}", "\n", OF_HELM.sub("", text))


if __name__ == "__main__":
    print(manifest(sys.argv[1]), end="")
