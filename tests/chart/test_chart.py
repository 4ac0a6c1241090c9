"""What the chart makes of its values, and what it refuses."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.helm import REPOSITORY
from disttrain import __version__
from disttrain.api import crd
from disttrain.cli import main

CHART = REPOSITORY / "charts" / "disttrain"
VALUES = sorted((CHART / "ci").glob("*.yaml"))
Manifest = dict[str, Any]


def run(helm: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [helm, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False
    )


def rendered(helm: Path, *flags: str | Path) -> dict[tuple[str, str], Manifest]:
    """Kind and name -> manifest."""
    done = run(helm, "template", "disttrain", CHART, "--namespace", "system", *flags)
    assert done.returncode == 0, done.stdout
    found = [one for one in yaml.safe_load_all(done.stdout) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def flags(values: Path | None) -> tuple[str | Path, ...]:
    """Helm's words for a file of values."""
    return ("--values", values) if values else ()


def environment(manifests: dict[tuple[str, str], Manifest], name: str = "disttrain") -> dict[str, str]:
    container = manifests["Deployment", name]["spec"]["template"]["spec"]["containers"][0]
    return {one["name"]: one["value"] for one in container["env"] if "value" in one}


def rights(role: Manifest) -> set[str]:
    """`verb group/resource` of each right."""
    return {
        f"{verb} {group}/{resource}"
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("values", [None, *VALUES], ids=lambda path: path.stem if path else "default")
def test_lint(helm: Path, values: Path | None) -> None:
    done = run(helm, "lint", "--strict", CHART, *flags(values))
    assert done.returncode == 0, done.stdout


def test_default(helm: Path) -> None:
    found = rendered(helm)
    assert set(found) == {
        ("CustomResourceDefinition", "disttrainjobs.disttrain.dev"),
        ("ServiceAccount", "disttrain"),
        ("ClusterRole", "system-disttrain"),
        ("ClusterRoleBinding", "system-disttrain"),
        ("ClusterRole", "system-disttrain-editor"),
        ("ClusterRole", "system-disttrain-viewer"),
        ("Role", "disttrain-lease"),
        ("RoleBinding", "disttrain-lease"),
        ("PodDisruptionBudget", "disttrain"),
        ("Deployment", "disttrain"),
    }
    definition = found["CustomResourceDefinition", "disttrainjobs.disttrain.dev"]
    assert definition["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert definition == crd.definition()
    deployment = found["Deployment", "disttrain"]["spec"]
    assert deployment["replicas"] == 2
    spec = deployment["template"]["spec"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = spec["containers"][0]
    assert container["image"] == f"disttrain/operator:{__version__}"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert container["resources"]["limits"] == {"memory": "256Mi"}
    for selected in (deployment["selector"], found["PodDisruptionBudget", "disttrain"]["spec"]["selector"]):
        assert selected["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()
    for binding in ("ClusterRoleBinding", "system-disttrain"), ("RoleBinding", "disttrain-lease"):
        account = {"kind": "ServiceAccount", "name": "disttrain", "namespace": "system"}
        assert found[binding]["subjects"] == [account]


def test_the_operator_has_these_rights_and_no_others(helm: Path) -> None:
    """tests/chart/test_install.py shows on a real API server that they suffice."""
    found = rendered(helm)
    assert rights(found["ClusterRole", "system-disttrain"]) == {
        *(f"{verb} disttrain.dev/disttrainjobs" for verb in ("get", "list", "watch", "delete")),
        "patch disttrain.dev/disttrainjobs/status",
        *(f"{verb} /pods" for verb in ("get", "list", "watch", "create", "patch", "delete")),
        *(f"{verb} /{kind}" for verb in ("get", "create") for kind in ("services", "configmaps", "secrets")),
        *(f"{verb} /events" for verb in ("create", "patch")),
        "get /pods/log",
    }
    lease = found["Role", "disttrain-lease"]
    assert rights(lease) == {f"{verb} coordination.k8s.io/leases" for verb in ("create", "get", "patch")}
    assert lease["rules"][1]["resourceNames"] == [environment(found)["DISTTRAIN_LEASE_NAME"]]


def test_logs_are_read_only_where_progress_is_wanted(helm: Path) -> None:
    found = rendered(helm, "--set", "progress.enabled=false")
    assert "get /pods/log" not in rights(found["ClusterRole", "system-disttrain"])
    assert environment(found)["DISTTRAIN_PROGRESS_SECONDS"] == "0"


def test_namespaces(helm: Path) -> None:
    """Nothing is cluster-wide but what users are given."""
    found = rendered(helm, "--values", CHART / "ci" / "namespaces-values.yaml", "--set", "rbac.userRoles=false")
    roles = [(kind, one["metadata"].get("namespace")) for (kind, _), one in found.items()]
    text = run(helm, "template", "disttrain", CHART, "--namespace", "system", "-f", CHART / "ci/namespaces-values.yaml")
    assert sorted(set(re.findall(r"namespace: (team-\w)", text.stdout))) == ["team-a", "team-b"]
    assert "ClusterRoleBinding" not in text.stdout
    assert not {kind for kind, _ in roles} & {"ClusterRole", "CustomResourceDefinition", "PodDisruptionBudget"}
    assert environment(found)["DISTTRAIN_NAMESPACE"] == "team-a,team-b"
    assert environment(found)["DISTTRAIN_LEADER_ELECT"] == "false"


def test_everything_on(helm: Path) -> None:
    found = rendered(helm, "--values", CHART / "ci" / "full-values.yaml")
    spec = found["Deployment", "trainer"]["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == "mirror.example/disttrain/operator:v1"
    assert spec["serviceAccountName"] == "trainer-account"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert list(spec["affinity"]) == ["nodeAffinity"]
    assert environment(found, "trainer")["DISTTRAIN_PROGRESS_SECONDS"] == "12.5"
    assert environment(found, "trainer")["DISTTRAIN_LEASE_NAME"] == "trainers"
    monitor = found["ServiceMonitor", "trainer"]
    service = found["Service", "trainer-metrics"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    labels = found["Deployment", "trainer"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


@pytest.mark.parametrize("values", [None, *VALUES], ids=lambda path: path.stem if path else "default")
def test_the_operator_takes_its_environment(helm: Path, values: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable is one that the command knows, and its value is one that it takes."""
    found = rendered(helm, *flags(values))
    name = next(name for kind, name in found if kind == "Deployment")
    given = {key: value for key, value in environment(found, name).items() if key.startswith("DISTTRAIN_")}
    given["DISTTRAIN_LISTEN"] = given["DISTTRAIN_LISTEN"].replace("$(POD_IP)", "fd00::1")
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    chosen: list[Any] = []

    def run_operator(options: Any) -> int:
        chosen.append(options)
        return 0

    monkeypatch.setattr("disttrain.main.run", run_operator)
    assert main(["operator"]) == 0
    (options,) = chosen
    assert options.listen == "fd00::1:8080"
    assert str(options.leader_elect).lower() == given["DISTTRAIN_LEADER_ELECT"]
    assert options.lease_name == given.get("DISTTRAIN_LEASE_NAME", "disttrain")
    assert options.lease_namespace == given.get("DISTTRAIN_LEASE_NAMESPACE", "")
    assert options.progress_seconds == float(given["DISTTRAIN_PROGRESS_SECONDS"])
    assert (options.workers, options.writes) == (24, 32)
    assert list(options.namespaces) == given.get("DISTTRAIN_NAMESPACE", "").split(",") or not options.namespaces
    assert options.log_level == given["DISTTRAIN_LOG_LEVEL"]
    assert options.log_format == given["DISTTRAIN_LOG_FORMAT"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("replica=3", "additional properties 'replica' not allowed"),
        ("replicas=many", "got string, want integer"),
        ("log.level=loud", "value must be one of 'debug', 'info', 'warning', 'error'"),
        ("namespaces={Team_A}", "does not match pattern"),
        ("progress.seconds=0", "minimum: got 0, want 1"),
        ("leaderElection.enabled=false", "replicas is 2 while leaderElection.enabled is false"),
        ("serviceAccount.create=false", "serviceAccount.name must say which one exists"),
    ],
)
def test_refused(helm: Path, setting: str, words: str) -> None:
    done = run(helm, "template", "disttrain", CHART, "--set", setting)
    assert done.returncode != 0
    assert words in done.stdout


def test_an_old_cluster_is_refused(helm: Path) -> None:
    done = run(helm, "template", "disttrain", CHART, "--kube-version", "1.29.9")
    assert done.returncode != 0
    assert "requires kubeVersion: >=1.30.0-0" in done.stdout


def test_every_value_has_a_comment_and_is_in_the_schema() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    bare = [line for before, line in zip(["", *lines], lines, strict=False) if line[:1].isalpha() and before[:1] != "#"]
    assert bare == []
    known = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]
    assert set(yaml.safe_load("\n".join(lines))) == set(known) - {"global"}


def test_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_install_yaml_is_not_stale(helm: Path) -> None:
    spec = importlib.util.spec_from_file_location("install", REPOSITORY / "charts" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.manifest(str(helm))
    assert (REPOSITORY / "dist" / "install.yaml").read_text() == text, "run `make dist`"
    assert "Helm" not in text
    assert "helm.sh" not in text
    kinds = [one["kind"] for one in yaml.safe_load_all(text)]
    assert kinds[0] == "Namespace"
    assert len(kinds) == len(rendered(helm)) + 1
