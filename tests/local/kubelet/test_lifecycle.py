"""A pod's life: phases, exit codes, messages, restarts, deletion."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from local.kubelet.conftest import Cluster, left, marked, state

Json = dict[str, Any]


async def test_a_pod_runs_to_its_end_and_says_so(either: Cluster) -> None:
    await either.run("good", "sh", "-c", "echo out; echo err >&2")
    pod = await either.over("good")
    assert pod["status"]["phase"] == "Succeeded"
    assert pod["spec"]["nodeName"]
    assert either.log("good") == "out\nerr\n"
    ended = state(pod)["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert ended["startedAt"] <= ended["finishedAt"]
    conditions = {c["type"]: (c["status"], c.get("reason", "")) for c in pod["status"]["conditions"]}
    assert conditions == {
        "PodReadyToStartContainers": ("False", ""),
        "Initialized": ("True", ""),
        "Ready": ("False", "PodCompleted"),
        "ContainersReady": ("False", "PodCompleted"),
        "PodScheduled": ("True", ""),
    }
    assert pod["status"]["podIP"].startswith("127.")
    assert pod["status"]["podIPs"] == [{"ip": pod["status"]["podIP"]}]
    assert pod["status"]["hostIP"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("script", "code"), [("exit 3", 3), ("kill -9 $$$$", 137), ("kill -TERM $$$$", 143), ("kill -SEGV $$$$", 139)]
)
async def test_exit_codes_and_signals(either: Cluster, script: str, code: int) -> None:
    await either.run("bad", "sh", "-c", script)
    pod = await either.over("bad")
    assert pod["status"]["phase"] == "Failed"
    ended = state(pod)["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (code, "Error")


async def test_a_running_pod_is_ready(cluster: Cluster) -> None:
    await cluster.run("runs", "sleep", "60")
    pod = await cluster.running("runs")
    status = pod["status"]["containerStatuses"][0]
    assert (status["ready"], status["started"], status["restartCount"]) == (True, True, 0)
    assert set(status["state"]) == {"running"}
    conditions = {c["type"]: c["status"] for c in pod["status"]["conditions"]}
    assert set(conditions.values()) == {"True"}
    assert "startTime" in pod["status"]


async def test_deleting_lets_the_program_end_in_its_own_way(either: Cluster) -> None:
    script = "trap 'echo saving; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    await either.run("polite", "bash", "-c", script)
    await either.logged("polite", "up")
    await either.delete("polite")
    await either.gone("polite")
    assert either.log("polite").endswith("saving\n")


async def test_a_program_that_ignores_sigterm_is_killed_after_its_grace(either: Cluster) -> None:
    word = uuid.uuid4().hex
    await either.run("stubborn", "bash", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done", word)
    await either.logged("stubborn", "up")
    began = time.monotonic()
    await either.delete("stubborn", grace=1)
    await either.gone("stubborn")
    assert 0.9 < time.monotonic() - began < 3
    assert marked(word) == []


async def test_a_shorter_grace_cuts_a_longer_one(cluster: Cluster) -> None:
    await cluster.run("slow", "bash", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    await cluster.logged("slow", "up")
    await cluster.delete("slow", grace=30)
    await cluster.until("slow", lambda pod: pod["metadata"].get("deletionTimestamp"))
    began = time.monotonic()
    await cluster.delete("slow", grace=0)
    await cluster.gone("slow")
    assert time.monotonic() - began < 3


async def test_nothing_of_a_pod_is_left_not_even_what_made_a_session_of_its_own(either: Cluster) -> None:
    word = uuid.uuid4().hex
    # `sleep` takes only numbers, so the word goes to a shell around it.
    script = f"""
        setsid bash -c 'sleep 100; true' {word} &
        (setsid env -i $(command -v bash) -c 'sleep 100; true' {word} &)
        echo up; sleep 100; true
    """
    await either.run("tree", "bash", "-c", script)
    await either.logged("tree", "up")
    await left(word, 2)
    await either.delete("tree")
    await either.gone("tree")
    assert marked(word) == []


async def test_what_a_container_leaves_behind_ends_with_it(either: Cluster) -> None:
    word = uuid.uuid4().hex
    await either.run("leaver", "bash", "-c", f"setsid bash -c 'sleep 100; true' {word} & sleep 0.1; echo bye")
    pod = await either.over("leaver")
    assert pod["status"]["phase"] == "Succeeded"
    await left(word, 0)


async def test_a_command_that_is_not_there(either: Cluster) -> None:
    await either.run("typo", "trian.py")
    pod = await either.over("typo")
    ended = state(pod)["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert ended["message"] == 'exec: "trian.py": executable file not found in $PATH'


async def test_a_pod_without_a_command_says_what_would_do(cluster: Cluster) -> None:
    await cluster.client.post(
        "/api/v1/namespaces/default/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "none"},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
        },
    )
    pod = await cluster.over("none")
    assert pod["status"]["reason"] == "UnsupportedPodSpec"
    assert "Write the command in the template" in pod["status"]["message"]
    assert state(pod)["terminated"]["message"] == pod["status"]["message"]


async def test_init_containers_run_one_after_the_other_first(either: Cluster) -> None:
    inits = [
        {"name": n, "image": "x", "command": ["sh", "-c", f"sleep 0.05; date +%s%N; echo {n}"]} for n in ("one", "two")
    ]
    await either.run("staged", "sh", "-c", "date +%s%N", spec={"initContainers": inits})
    pod = await either.over("staged")
    assert pod["status"]["phase"] == "Succeeded"
    times = [int(either.log("staged", name).split()[0]) for name in ("one", "two", "main")]
    assert times == sorted(times)
    assert [s["ready"] for s in pod["status"]["initContainerStatuses"]] == [True, True]


async def test_a_failed_init_container_fails_the_pod_before_it_starts(cluster: Cluster) -> None:
    inits = [{"name": "check", "image": "x", "command": ["sh", "-c", "exit 4"]}]
    await cluster.run("unborn", "true", spec={"initContainers": inits})
    pod = await cluster.over("unborn")
    assert pod["status"]["phase"] == "Failed"
    assert state(pod, "check")["terminated"]["exitCode"] == 4
    assert state(pod) == {"waiting": {"reason": "PodInitializing"}}


async def test_on_failure_restarts_until_it_succeeds_and_keeps_the_log_before(cluster: Cluster, tmp_path: Any) -> None:
    mark = tmp_path / "tried"
    script = f"if [ -e {mark} ]; then echo second; else touch {mark}; echo first; exit 1; fi"
    await cluster.run("retry", "sh", "-c", script, spec={"restartPolicy": "OnFailure"})
    pod = await cluster.over("retry")
    assert pod["status"]["phase"] == "Succeeded"
    status = pod["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert cluster.log("retry") == "second\n"
    assert cluster.log("retry", previous=True) == "first\n"


async def test_a_crash_loop_backs_off(cluster: Cluster) -> None:
    await cluster.run("loop", "false", spec={"restartPolicy": "Always"})
    pod = await cluster.until("loop", lambda pod: "CrashLoopBackOff" in str(state(pod)))
    assert state(pod)["waiting"]["message"].startswith(
        "back-off 0.1s restarting failed container=main pod=loop_default("
    )
    assert pod["status"]["phase"] == "Running"
    await cluster.until("loop", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] >= 3)


async def test_the_termination_message_is_the_last_of_its_file(cluster: Cluster) -> None:
    await cluster.run(
        "speaker",
        "sh",
        "-c",
        "head -c 5000 /dev/zero | tr '\\0' x > /dev/termination-log; printf end >> /dev/termination-log",
    )
    message = state(await cluster.over("speaker"))["terminated"]["message"]
    assert len(message) == 4096
    assert message.endswith("xend")


async def test_the_end_of_the_log_stands_in_for_a_message_of_a_failure(either: Cluster) -> None:
    policy: Json = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await either.run("long", "sh", "-c", "seq 1 100; exit 1", **policy)
    message = state(await either.over("long"))["terminated"]["message"]
    assert message == "".join(f"{n}\n" for n in range(21, 101))
    await either.run("wide", "sh", "-c", "head -c 3000 /dev/zero | tr '\\0' y; exit 1", **policy)
    assert state(await either.over("wide"))["terminated"]["message"] == "y" * 2048
    await either.run("fine", "sh", "-c", "echo words", **policy)
    assert "message" not in state(await either.over("fine"))["terminated"]


async def test_a_deadline_ends_a_pod(cluster: Cluster) -> None:
    await cluster.run("late", "sleep", "60", spec={"activeDeadlineSeconds": 1})
    pod = await cluster.over("late")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")


async def test_a_pod_of_the_same_name_may_follow_at_once(cluster: Cluster) -> None:
    for turn in range(3):
        await cluster.run("again", "sh", "-c", f"echo {turn}; sleep 60")
        await cluster.logged("again", f"{turn}\n")
        await cluster.delete("again")
        await cluster.gone("again")


async def test_shell_redirections_to_stderr_do_not_cut_the_log(either: Cluster) -> None:
    await either.run("shell", "sh", "-c", "echo one; echo two > /dev/stderr; echo three > /dev/stdout")
    await either.over("shell")
    assert either.log("shell") == "one\ntwo\nthree\n"
