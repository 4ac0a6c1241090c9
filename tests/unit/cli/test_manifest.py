from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from disttrain.cli import manifest
from disttrain.cli.console import CliError

JOB = "apiVersion: disttrain.dev/v1alpha1\nkind: DistTrainJob\nmetadata: {name: digits}\nspec: {framework: pytorch}\n"
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\n"


def test_a_job_with_what_it_needs() -> None:
    found = manifest.parse(f"---\n{SECRET}---\n\n---\n{JOB}", "job.yaml")
    assert (found.name, found.namespace) == ("digits", "default")
    assert [item["kind"] for item in found.others] == ["Secret"]
    assert manifest.parse(found.dump(), "again") == found


def test_a_list_and_json() -> None:
    text = '{"apiVersion": "v1", "kind": "List", "items": [%s]}'
    job = '{"apiVersion": "disttrain.dev/v1alpha1", "kind": "DistTrainJob", "metadata": %s}'
    found = manifest.parse(text % job % '{"name": "a", "namespace": "b"}', "job.json")
    assert (found.name, found.namespace) == ("a", "b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must hold exactly one DistTrainJob (apiVersion disttrain.dev/v1alpha1), but it holds: nothing"),
        (SECRET, "but it holds: Secret keys"),
        (f"{JOB}---\n{JOB}", "but it holds: DistTrainJob digits, DistTrainJob digits"),
        ("a: [", "job.yaml is not YAML: line 1, column 5: while parsing a flow node"),
        (JOB.replace("kind:", " kind:"), "job.yaml is not YAML: line 2, column 6: mapping values are not allowed here"),
        ("a: \x07", "job.yaml is not YAML: unacceptable character #x0007"),
        ("just words", "document 1 of job.yaml is no Kubernetes object"),
        (f"{SECRET}---\nkind: X\n", "document 2 of job.yaml is no Kubernetes object"),
        (JOB.replace("{name: digits}", "{generateName: x-}"), "has no metadata.name"),
        (JOB.replace("pytorch}", "pytorch, managedBy: kueue.x-k8s.io/multikueue}"), "which does not run here"),
        (JOB.replace("pytorch}", "pytorch, suspend: true}"), "would never start"),
        (JOB.replace("v1alpha1", "v9"), "this version of disttrain knows disttrain.dev/v1alpha1"),
    ],
)
def test_what_is_no_manifest(text: str, words: str) -> None:
    with pytest.raises(CliError) as error:
        manifest.parse(text, "job.yaml")
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.code == 1


def test_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    assert manifest.load(str(tmp_path / "job.yaml")).name == "digits"
    monkeypatch.setattr("sys.stdin", io.StringIO(JOB))
    assert manifest.load("-").name == "digits"
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, code, words in (("none", 2, "there is no file"), ("", 2, "cannot be read"), ("binary", 1, "not UTF-8")):
        with pytest.raises(CliError, match=words) as error:
            manifest.load(str(tmp_path / name))
        assert error.value.code == code


def _job(**spec: Any) -> manifest.Manifest:
    return manifest.Manifest({"metadata": {"name": "digits"}, "spec": {"framework": "pytorch", **spec}}, ())


def test_resuming() -> None:
    found = _job(checkpoints={"claimName": "kept"})
    assert manifest.resumed(found, "uid-1").job["spec"]["checkpoints"] == {"claimName": "kept", "resumeFrom": "uid-1"}
    assert "resumeFrom" not in found.job["spec"]["checkpoints"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "has no spec.checkpoints"),
        ({"checkpoints": {"volume": {"emptyDir": {}}}}, "is an emptyDir"),
        ({"checkpoints": {"claimName": "kept", "resumeFrom": "x"}}, "sets spec.checkpoints.resumeFrom itself"),
    ],
)
def test_what_cannot_be_resumed(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(CliError, match=words):
        manifest.resumed(_job(**spec), "uid-1")


def test_other_sizes() -> None:
    found = _job(worker={"replicas": 2, "template": {}}, procsPerNode=8)
    assert manifest.resized(found, 5).job["spec"]["worker"] == {"replicas": 5, "template": {}}
    assert manifest.resized(_job(), 5).job["spec"]["worker"] == {"replicas": 5}
    assert manifest.without_accelerators(found).job["spec"]["procsPerNode"] == 1
    assert found.job["spec"]["procsPerNode"] == 8


def test_the_words_of_all_commands() -> None:
    def template(*command: str) -> dict[str, Any]:
        return {"spec": {"containers": [{"command": list(command), "args": ["-x"]}]}}

    found = _job(template=template("sh", "-c", "torchrun a.py"), master={"template": template("python", "b.py")})
    assert list(manifest.words(found)) == ["sh", "-c", "torchrun", "a.py", "-x", "python", "b.py", "-x"]
    assert list(manifest.words(manifest.Manifest({"metadata": {"name": "a"}, "spec": None}, ()))) == []
    assert list(manifest.words(_job(template="nonsense", master={"template": {"spec": "nonsense"}}))) == []
