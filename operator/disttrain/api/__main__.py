"""`python -m disttrain.api [FOLDER]` writes what is generated from the types: the CRD and the reference of fields."""

from __future__ import annotations

import sys
from pathlib import Path

from . import crd, reference


def generated() -> dict[str, str]:
    """Path below the repository's root -> content."""
    return {
        f"crds/{crd.FILE}": crd.manifest(),
        "charts/disttrain/files/crd.yaml": crd.manifest({"helm.sh/resource-policy": "keep"}),
        "docs/reference.md": reference.markdown(),
    }


def main() -> None:
    """Writes below FOLDER, by default the one we are in."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for name, text in generated().items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
        print(root / name)


if __name__ == "__main__":
    main()
