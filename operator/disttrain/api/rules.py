"""The rules of the resource: what the API server refuses that a schema cannot say."""

from __future__ import annotations

from msgspec import Struct
from msgspec.inspect import ListType, StrType

from .cel import Rule, literal, says, words
from .constants import MAX_PROCS, RESERVED_ENV
from .schema import fields
from .types import FRAMEWORK_ROLES, ROLES, Spec

DNS_1035 = "^[a-z]([-a-z0-9]*[a-z0-9])?$"


def rules(*, later: bool = True) -> list[Rule]:
    """Every rule. `later=False`: without those that refuse fields which this version does not have yet."""
    return [
        *_name(),
        *_framework(),
        *_roles(),
        *_worker(),
        *_launched(),
        *_templates(),
        *_fields(),
        *_marked(Spec, "spec", later=later),
    ]


def _name() -> list[Rule]:
    return [
        Rule(
            at="",
            holds=f"self.metadata.name.size() <= 63 && self.metadata.name.matches('{DNS_1035}')",
            field=".metadata.name",
            when="Created",
            message=says(
                "%s cannot be the name of a Service, which the job makes under its own name: use at most 63 of a-z, "
                "0-9 and -, a letter first and no - last",
                "self.metadata.name",
            ),
        )
    ]


def _framework() -> list[Rule]:
    return [
        Rule(
            at="spec.framework",
            holds="self == oldSelf",
            when="Always",
            reason="FieldValueForbidden",
            message=says("cannot change from %s to %s: make a new job", "oldSelf", "self"),
        ),
        Rule(
            at="spec.managedBy",
            holds="self == oldSelf",
            when="Always",
            reason="FieldValueForbidden",
            message=says("cannot change from %s to %s: delete the job and make it again", "oldSelf", "self"),
        ),
    ]


def _roles() -> list[Rule]:
    """Which roles a framework has, and how many pods each may have."""
    listing = "self.framework"
    for framework, roles in FRAMEWORK_ROLES.items():
        listing = f"self.framework == '{framework}' ? '{words(roles)}' : {listing}"
    found = []
    for role in ROLES:
        users = [framework for framework, roles in FRAMEWORK_ROLES.items() if role in roles]
        if len(users) < len(FRAMEWORK_ROLES):
            found.append(
                Rule(
                    at="spec",
                    holds=f"!has(self.{role}) || self.framework in {users}",
                    field=f".{role}",
                    reason="FieldValueForbidden",
                    message=says(
                        f"%s jobs have no {role}: leave it out; their roles are %s", "self.framework", listing
                    ),
                )
            )
    for role in ("master", "chief", "evaluator"):
        found.append(
            Rule(
                at=f"spec.{role}",
                holds="self.replicas <= 1",
                field=".replicas",
                message=says(f"%d given, but a job has at most one {role}: set it to 0 or 1", "self.replicas"),
            )
        )
    found.append(
        Rule(
            at="spec.launcher",
            holds="self.replicas == 1",
            field=".replicas",
            message=says("%d given, but a job has one launcher: set it to 1 or leave it out", "self.replicas"),
        )
    )
    return found


def _worker() -> list[Rule]:
    """How many workers there may be. These rules also hold on the scale subresource."""
    return [
        Rule(
            at="spec",
            holds=(
                "self.worker.replicas > 0 || (has(self.master) && self.master.replicas == 1) || "
                "(has(self.chief) && self.chief.replicas == 1)"
            ),
            field=".worker.replicas",
            message=(
                "0 given, but only a job with a master (pytorch) or chief (tensorflow) of 1 replica can be without "
                "workers: set it to 1 or more"
            ),
        ),
        Rule(
            at="spec",
            holds=f"({_no_pods('ps')}) || ({_no_pods('chief')}) || self.success == 'Leader'",
            field=".success",
            message=says(
                "%s given, but beside a chief and parameter servers the workers serve until the chief has ended: "
                "leave it out",
                "self.success",
            ),
        ),
        Rule(
            at="spec.elastic",
            holds="self.minReplicas <= self.maxReplicas",
            field=".minReplicas",
            message=says(
                "%d given, which is more than maxReplicas, %d: lower the one or raise the other",
                "self.minReplicas",
                "self.maxReplicas",
            ),
        ),
        Rule(
            at="spec",
            holds=(
                "!has(self.elastic) || self.elastic.minReplicas > self.elastic.maxReplicas || "
                "(self.worker.replicas >= self.elastic.minReplicas && "
                "self.worker.replicas <= self.elastic.maxReplicas)"
            ),
            field=".worker.replicas",
            message=says(
                "%d given, but spec.elastic allows %d to %d: choose from these or change spec.elastic",
                "self.worker.replicas",
                "self.elastic.minReplicas",
                "self.elastic.maxReplicas",
            ),
        ),
    ]


def _launched() -> list[Rule]:
    """What only frameworks with a launcher have, which exists also where it is not written."""
    launched = [framework for framework, roles in FRAMEWORK_ROLES.items() if "launcher" in roles]
    return [
        Rule(
            at="spec",
            holds=f"!has(self.mpi) || self.framework in {launched}",
            field=".mpi",
            reason="FieldValueForbidden",
            message=says(f"%s jobs have no use for it: leave it out; {words(launched)} have", "self.framework"),
        ),
        Rule(
            at="spec",
            holds=f"!(self.framework in {launched}) || has(self.launcher) || has(self.template)",
            field=".launcher.template",
            reason="FieldValueRequired",
            message="the launcher has no pod template: write spec.template for all roles or spec.launcher.template",
        ),
        Rule(
            at="spec",
            holds=f"!(self.framework in {launched}) || self.success == 'Leader'",
            field=".success",
            message=says(
                "%s given, but the workers of %s jobs serve until the launcher has ended: leave it out",
                "self.success",
                "self.framework",
            ),
        ),
    ]


def _templates() -> list[Rule]:
    """What the pod templates may say."""
    found = [
        Rule(
            at="spec",
            holds=f"has(self.template) || {_no_pods(role)} || has(self.{role}.template)",
            field=f".{role}.template",
            reason="FieldValueRequired",
            message=f"the {role} has no pod template: write spec.template for all roles or spec.{role}.template",
        )
        for role in ROLES
    ]
    for template in ("template", *(f"{role}.template" for role in ROLES)):
        found.append(
            Rule(
                at=f"spec.{template}.spec",
                holds="!has(self.restartPolicy) || self.restartPolicy == 'Never'",
                field=".restartPolicy",
                reason="FieldValueForbidden",
                message=says(
                    "%s given, but the operator restarts pods, not the node: leave it out and say in spec.restart "
                    "how often (limit) and what (scope)",
                    "self.restartPolicy",
                ),
            )
        )
        found.extend(
            Rule(
                at=f"spec.{template}.spec.{containers}[].env[]",
                holds=f"!(self.name in {list(RESERVED_ENV)})",
                field=".name",
                reason="FieldValueForbidden",
                when="Always",
                message=says(
                    f"%s is set by the operator: leave it out. Its names are {words(RESERVED_ENV)}", "self.name"
                ),
            )
            for containers in ("containers", "initContainers")
        )
    return found


def _no_pods(role: str) -> str:
    return "self.worker.replicas == 0" if role == "worker" else f"!has(self.{role}) || self.{role}.replicas == 0"


def _fields() -> list[Rule]:
    """Rules of single fields."""
    return [
        Rule(
            at="spec.procsPerNode",
            holds=f"type(self) == int ? (self >= 1 && self <= {MAX_PROCS}) : self == 'auto'",
            message=says(f"%s given: write auto or a number from 1 to {MAX_PROCS}, without quotes", "string(self)"),
        ),
        Rule(
            at="spec.checkpoints",
            holds="!has(self.claimName) || !has(self.volume)",
            reason="FieldValueForbidden",
            field=".volume",
            message=says("beside claimName, which is %s: keep one of the two", "self.claimName"),
        ),
        Rule(
            at="spec.checkpoints",
            holds="has(self.claimName) || has(self.volume)",
            reason="FieldValueRequired",
            field=".claimName",
            message="write the name of a PersistentVolumeClaim, or a volume in spec.checkpoints.volume",
        ),
    ]


def _marked(cls: type[Struct], at: str, *, later: bool) -> list[Rule]:
    """The rules that follow from marks in the types: patterns with a hint and, if `later`, what is not built yet."""
    found: list[Rule] = []
    for field in fields(cls):
        path = f"{at}.{field.name}"
        if later and "later" in field.extra:
            unset = "" if field.default is None else f" || self.{field.name} == {literal(field.default)}"
            instead = f"; {field.extra['later']}" if field.extra["later"] else ""
            found.append(
                Rule(
                    at=at,
                    holds=f"!has(self.{field.name}){unset}",
                    field=f".{field.name}",
                    reason="FieldValueForbidden",
                    message=f"not in this version of DistTrainJob yet: leave it out{instead}",
                )
            )
        if hint := field.extra.get("hint"):
            assert isinstance(field.kind, StrType)
            assert field.kind.pattern
            found.append(
                Rule(
                    at=path,
                    when="Changed",
                    holds=f"self.matches({literal(field.kind.pattern)})",
                    message=says(f"%s given: write {hint}", "self"),
                )
            )
        if field.struct is not None and not isinstance(field.kind, ListType):
            found.extend(_marked(field.struct, path, later=later))
    return found
