"""`disttrain run`: the real operator on a real one-machine cluster, with shell scripts for a training."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from local.cli.shell import Shell, eventually, processes

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc"),
    pytest.mark.timeout(300),  # each starts clusters, and the machine may be busy
]

JOB = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {{name: {name}}}
spec:
  framework: pytorch
  master: {{replicas: 1}}
  worker: {{replicas: {workers}}}
  restart: {{limit: {limit}}}
  {extra}
  template:
    spec:
      terminationGracePeriodSeconds: 20
      containers:
        - name: train
          image: none
          command: [sh, -c, {command}]
"""


def job(command: str, *, name: str = "hello", workers: int = 1, limit: int = 0, extra: str = "debug: false") -> str:
    return JOB.format(name=name, workers=workers, limit=limit, extra=extra, command=json.dumps(command))


def test_a_job_that_succeeds(shell: Shell) -> None:
    progress = 'DISTTRAIN_PROGRESS {"rank":0,"worldSize":3,"epoch":2,"epochs":2,"step":9,"of":9,"loss":0.5}'
    script = f"echo I am $NODE_RANK of $WORLD_SIZE; echo '{progress}'; printf 'no newline'"
    shell.write("job.yaml", job(script, workers=2))
    out = shell.run("run", "job.yaml")
    for rank, who in enumerate(("master-0 ", "worker-0 ", "worker-1 ")):
        assert f"{who} | I am {rank} of 3\n" in out
        assert f"{who} | no newline\n" in out
    assert "DISTTRAIN_PROGRESS" not in out
    assert "disttrain | epoch 2/2, step 9/9, loss 0.5\n" in out
    assert "hello has succeeded after " in out
    [run] = shell.runs()
    assert f"./disttrain-runs/{run.name}" in out
    assert sorted(path.name for path in (run / "logs").iterdir()) == ["master-0.log", "worker-0.log", "worker-1.log"]
    assert (run / "logs" / "worker-1.log").read_text() == f"I am 2 of 3\n{progress}\nno newline"
    facts = shell.facts(run)
    assert (facts["state"], facts["exitCode"], facts["job"]) == ("Succeeded", 0, "hello")
    assert facts["progress"]["step"] == 9
    assert "kind: DistTrainJob" in (run / "manifest.yaml").read_text()
    shell.nothing_left()


def test_json_has_one_line_for_a_script(shell: Shell) -> None:
    shell.write("job.yaml", job("echo hi", workers=1))
    command = shell.start("run", "job.yaml", "--output", "json")
    assert command.wait() == 0
    lines = [line for line in command.out.splitlines() if line.startswith("{")]
    assert len(lines) == 1
    assert json.loads(lines[0])["state"] == "Succeeded"


def test_a_job_that_fails_says_why_and_shows_the_last_lines(shell: Shell) -> None:
    script = "echo before; if [ $DISTTRAIN_ROLE = worker ]; then echo out of cheese >&2; exit 7; fi; sleep 60"
    shell.write("job.yaml", job(script))
    began = time.monotonic()
    out = shell.run("run", "job.yaml", code=1)
    assert time.monotonic() - began < 50
    said = out[out.index("The last lines of hello-worker-0:") :]
    assert "  before\n  out of cheese\n" in said
    assert "disttrain: hello has failed: " in said
    assert "7" in said[said.index("disttrain: hello has failed: ") :]
    [run] = shell.runs()
    assert shell.facts(run)["state"] == "Failed"
    assert shell.facts(run)["exitCode"] == 1


def test_the_last_lines_are_the_trainings_not_torchruns(shell: Shell) -> None:
    report = (
        "E1130 21:57:49.806000 2 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) "
        "local_rank: 0 (pid: 3) of binary: python\nRoot Cause (first observed failure):"
    )
    shell.write("job.yaml", job(f"echo out of cheese; printf '{report}\n'; exit 1", workers=0))
    out = shell.run("run", "job.yaml", code=1)
    [run] = shell.runs()
    assert out[out.index("The last lines of ") :].startswith(
        "The last lines of hello-master-0:\n  out of cheese\n  \ndisttrain: hello has failed: "
    )
    assert f"./disttrain-runs/{run.name}/logs/master-0.log shows why." in out
    assert "kubectl" not in out


def test_a_command_that_does_not_exist_is_named(shell: Shell) -> None:
    shell.write("job.yaml", job("true", workers=0).replace("[sh, -c,", "[pyton3, -c,"))
    out = shell.run("run", "job.yaml", code=1)
    said = out[out.index("disttrain: hello has failed: ") :]
    assert "pyton3" in said
    assert "A restart would not help." in said


def test_a_restart_is_followed_into_its_own_log(shell: Shell) -> None:
    script = "echo round $DISTTRAIN_ROUND; if [ $DISTTRAIN_ROUND = 1 ]; then exit 3; fi"
    shell.write("job.yaml", job(script, workers=0, limit=1))
    out = shell.run("run", "job.yaml")
    assert "master-0  | round 1\n" in out
    assert "master-0  | round 2\n" in out
    [run] = shell.runs()
    assert (run / "logs" / "master-0-r2.log").read_text() == "round 2\n"


def test_what_the_api_server_refuses_ends_in_its_words(shell: Shell) -> None:
    shell.write("job.yaml", job("true").replace("framework: pytorch", "framework: pytorch\n  chief: {replicas: 1}"))
    out = shell.run("run", "job.yaml", code=1)
    assert "disttrain: DistTrainJob hello was refused: " in out
    assert "chief" in out
    assert "Traceback" not in out
    assert shell.runs() == []
    assert not list(shell.folder.glob("disttrain-runs/hello-*"))


def test_a_template_that_the_first_pod_shows_to_be_wrong(shell: Shell) -> None:
    shell.write("job.yaml", job("true").replace("image: none", "image: none\n          imagePullPolcy: Never"))
    out = shell.run("run", "job.yaml", code=1)
    assert "disttrain: hello cannot run: " in out
    assert "imagePullPolcy" in out


def test_objects_beside_the_job_and_a_mapped_folder(shell: Shell) -> None:
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {greeting: hello from a ConfigMap}\n"
    (shell.folder / "src").mkdir()
    shell.write("src/data.txt", "hello from a file\n")
    extra = "sharedMemory: 64Mi"
    text = job("echo $GREETING; cat /disttrain-test/app/data.txt", workers=0, extra=extra)
    text += "          env: [{name: GREETING, valueFrom: {configMapKeyRef: {name: settings, key: greeting}}}]\n"
    shell.write("all.yaml", f"{config}---\n{text}---\n")
    out = shell.run("run", "all.yaml", "--map", "/disttrain-test/app=./src")
    assert "master-0  | hello from a ConfigMap\n" in out
    assert "master-0  | hello from a file\n" in out


def test_a_missing_config_map_ends_the_run(shell: Shell) -> None:
    text = job("true", workers=0) + "          envFrom: [{configMapRef: {name: nowhere}}]\n"
    shell.write("job.yaml", text)
    out = shell.run("run", "job.yaml", code=1)
    assert "disttrain: hello cannot run: " in out
    assert "nowhere" in out


def test_accelerators_that_are_not_there(shell: Shell) -> None:
    text = job("echo $PET_NPROC_PER_NODE process", workers=0)
    text += "          resources: {limits: {example.com/gpu: 4}}\n"
    shell.write("job.yaml", text.replace("debug: false", "procsPerNode: 4"))
    out = shell.run("run", "job.yaml", code=1)
    assert "disttrain: hello cannot run: " in out
    assert "example.com/gpu" in out
    assert "--cpu" in out
    assert "master-0  | 1 process\n" in shell.run("run", "job.yaml", "--cpu")


CHECKPOINTS = "checkpoints: {claimName: kept}"
CAREFUL = """
echo began with $(cat $DISTTRAIN_RESUME_FROM/step 2>/dev/null || echo nothing)
mkdir -p $DISTTRAIN_CHECKPOINT_DIR
if [ -e $DISTTRAIN_RESUME_FROM/step ]; then exit 0; fi
trap 'echo 41 > $DISTTRAIN_CHECKPOINT_DIR/step; echo saved; exit 143' TERM
echo ready
while true; do sleep 0.1; done
"""


def test_ctrl_c_lets_the_job_save_and_resume_goes_on(shell: Shell) -> None:
    shell.write("job.yaml", job(CAREFUL, workers=0, extra=CHECKPOINTS))
    (shell.folder / "src").mkdir()
    command = shell.start("run", "job.yaml", "--map", "/x/src=./src", "--cpu")
    command.until("| ready\n")
    command.interrupt()
    assert command.wait() == 130
    assert "the pods have up to 20 s to save and end" in command.out
    assert "master-0  | saved\n" in command.out
    assert (
        "To go on from its last checkpoint: disttrain run job.yaml --resume --map /x/src=./src --cpu\n" in command.out
    )
    shell.nothing_left()

    fresh = shell.start("run", "job.yaml")
    fresh.until("began with nothing")
    fresh.interrupt(signal.SIGTERM)
    assert fresh.wait() == 128 + signal.SIGTERM

    _, second = shell.runs()
    for _ in range(2):  # the first of these leaves no checkpoint of its own: the next goes on from the same one
        out = shell.run("run", "job.yaml", "--resume")
        source = f"/checkpoints/{shell.facts(second)['uid']}"
        assert f"which goes on from ./disttrain-runs/{second.name} (DISTTRAIN_RESUME_FROM={source})\n" in out
        assert "began with 41" in out
    assert len({shell.facts(run)["uid"] for run in shell.runs()}) == 4


def test_a_second_ctrl_c_kills(shell: Shell) -> None:
    shell.write("job.yaml", job("trap '' TERM; echo ready; while true; do sleep 0.1; done", workers=0))
    command = shell.start("run", "job.yaml")
    command.until("| ready\n")
    command.interrupt()
    command.until("Ctrl-C again kills them")
    began = time.monotonic()
    command.interrupt()
    assert command.wait() == 130
    assert time.monotonic() - began < 10  # its grace period is 20 s
    assert "killing the pods" in command.out


def test_ctrl_c_before_the_job_is_there(shell: Shell) -> None:
    shell.write("job.yaml", job("sleep 60", workers=0))
    command = shell.start("run", "job.yaml")
    command.until("starting the one-machine cluster")
    command.interrupt()
    assert command.wait() == 130
    assert "Traceback" not in command.out


@pytest.mark.parametrize("victim", ["run", "operator"])
def test_nothing_outlives_a_kill(shell: Shell, victim: str, tmp_path: Path) -> None:
    marker = f"{tmp_path}/marker"
    shell.write("job.yaml", job(f"echo ready; tail -f /dev/null {marker}", workers=1, limit=3))
    (tmp_path / "marker").touch()
    command = shell.start("run", "job.yaml")
    command.until("master-0  | ready\n")
    command.until("worker-0  | ready\n")
    assert len(processes(marker)) >= 2
    if victim == "run":
        command.interrupt(signal.SIGKILL)
        assert command.wait() == -signal.SIGKILL
    else:
        [operator] = [pid for pid in processes("disttrain operator") if pid in processes(str(tmp_path))]
        os.kill(operator, signal.SIGKILL)
        assert command.wait() == 1
        assert "has lost its operator" in command.out
    eventually(lambda: not processes(marker), "the pods' processes are still there")
    shell.nothing_left()


def test_the_time_that_a_run_may_take(shell: Shell) -> None:
    shell.write("job.yaml", job("echo ready; sleep 60", workers=0))
    out = shell.run("run", "job.yaml", "--timeout", "5s", code=1)
    assert "hello was stopped: it has not ended within 5s" in out


def test_replicas_in_place_of_the_manifests(shell: Shell) -> None:
    shell.write("job.yaml", job("echo one of $WORLD_SIZE", workers=1))
    assert "worker-1  | one of 3\n" in shell.run("run", "job.yaml", "--replicas", "2")


def test_a_job_in_another_namespace_from_stdin(shell: Shell) -> None:
    text = job("echo in $NS", workers=0).replace("{name: hello}", "{name: hello, namespace: team-a}")
    text += "          env: [{name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]\n"
    path = shell.write("job.yaml", text)
    command = shell.start("run", "-", stdin=path)
    assert command.wait() == 0, command.out
    assert "master-0  | in team-a\n" in command.out
