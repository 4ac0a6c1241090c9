"""The CustomResourceDefinition, generated from the types and the rules."""

from __future__ import annotations

from typing import Any

import yaml

from .cel import attach
from .constants import GROUP, KIND, PLURAL, SHORT_NAME, VERSION
from .rules import rules
from .schema import Schema, structural
from .types import Spec, Status

FILE = f"{GROUP}_{PLURAL}.yaml"

COLUMNS = (
    ("Framework", "string", ".spec.framework", "Framework of the job"),
    ("State", "string", ".status.state", "Where the job is"),
    ("Ready", "string", ".status.ready", "Ready pods of all"),
    ("Restarts", "integer", ".status.restarts", "Restarts charged so far"),
    ("Progress", "string", ".status.progressText", "How far the training is"),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the job was made"),
)


def openapi(*, later: bool = True) -> Schema:
    """The schema of a whole DistTrainJob with its rules."""
    schema: Schema = {
        "type": "object",
        "description": "Distributed training: one job of one framework, over many pods.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
            "spec": structural(Spec),
            "status": structural(Status, defaults=False),
        },
    }
    attach(schema, rules(later=later))
    return schema


def definition(*, later: bool = True) -> dict[str, Any]:
    """The CustomResourceDefinition. `later=False` takes fields that this version refuses, for tests of their rules."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": [SHORT_NAME],
                "categories": ["all"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.worker.replicas",
                            "statusReplicasPath": ".status.worker.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path, "description": description}
                        for name, kind, path, description in COLUMNS
                    ],
                    "schema": {"openAPIV3Schema": openapi(later=later)},
                }
            ],
        },
    }


class _Plain(yaml.SafeDumper):
    """YAML without anchors, which some tools cannot read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def manifest(annotations: dict[str, str] | None = None) -> str:
    """The definition as the YAML that is committed."""
    whole = definition()
    if annotations:
        whole["metadata"]["annotations"] = annotations
    text = yaml.dump(whole, Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)
    return f"# Generated from operator/disttrain/api/types.py by `make manifests`: do not edit.\n{text}"
