from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from disttrain import cli, main
from disttrain.cli import console, run
from disttrain.cluster.login import LoginError


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_has_help_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert f"usage: disttrain {command}" in out.replace("__main__.py", "disttrain")
    assert command == "version" or "examples:\n  disttrain" in out.replace('eval "$(disttrain', "disttrain")


def test_the_help_of_all(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/kubectl-disttrain"])
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    out = capsys.readouterr().out
    assert out.startswith("usage: kubectl disttrain")
    assert all(f"\n    {command} " in out for command in cli.COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["run"],
        ["run", "x.yaml", "--nonsense"],
        ["run", "x.yaml", "--map", "app=./src"],
        ["run", "x.yaml", "--map", "/app=./no-such-folder"],
        ["run", "x.yaml", "--timeout", "soon"],
        ["run", "x.yaml", "--replicas", "-1"],
        ["local"],
        ["logs", "digits", "--rank", "first"],
        ["operator", "--workers", "0"],
        ["operator", "--listen", "8080"],
        ["operator", "--progress-seconds", "-1"],
        ["get", "--output", "xml"],
    ],
)
def test_wrong_usage_is_2(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "no-such-file.yaml"], 2, "there is no file no-such-file.yaml"),
        (["logs", "digits", "--rank", "1", "--role", "worker"], 2, "give one of the two"),
        (["get", "--kubeconfig", "no-such-file"], 1, "`disttrain local up` starts a cluster on this machine"),
        (["operator", "--kubeconfig", "no-such-file"], 1, "no kubeconfig at no-such-file"),
    ],
)
def test_errors_are_one_sentence(
    arguments: Sequence[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == code
    err = capsys.readouterr().err
    assert err.startswith("disttrain: ")
    assert words in err
    assert err.count("\n") == 1


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.startswith("disttrain 0.1.0 (disttrain.dev/v1alpha1, Python 3.")
    assert cli.main(["version", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["disttrain"] == "0.1.0"


class TestOperator:
    """Options of the command line and of the environment."""

    @pytest.fixture
    def given(self, monkeypatch: pytest.MonkeyPatch) -> list[main.Options]:
        options: list[main.Options] = []

        def run(chosen: main.Options) -> int:
            options.append(chosen)
            return 0

        monkeypatch.setattr(main, "run", run)
        return options

    def test_defaults(self, given: list[main.Options]) -> None:
        assert cli.main(["operator"]) == 0
        assert given == [main.Options()]

    def test_the_command_line(self, given: list[main.Options]) -> None:
        words = (
            "operator --kubeconfig k --context c -n a -n b --listen 0.0.0.0:1 --workers 2 --writes 3 "
            "--progress-seconds 0 --allot-ports --log-level debug --log-format json"
        )
        assert cli.main(words.split()) == 0
        assert given == [
            main.Options(
                kubeconfig="k", context="c", namespaces=("a", "b"), listen="0.0.0.0:1", workers=2, writes=3,
                progress_seconds=0.0, allot_ports=True, log_level="debug", log_format="json",
            )
        ]  # fmt: skip
        assert cli.main(["operator", "--listen", "none"]) == 0
        assert given[1].listen == ""

    def test_the_environment(self, given: list[main.Options], monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {
            "KUBECONFIG": "k", "CONTEXT": "c", "NAMESPACE": "a, b", "LISTEN": "[::]:1", "WORKERS": "2", "WRITES": "3",
            "PROGRESS_SECONDS": "5", "ALLOT_PORTS": "true", "LOG_LEVEL": "debug", "LOG_FORMAT": "json",
        }.items():  # fmt: skip
            monkeypatch.setenv(f"DISTTRAIN_{name}", value)
        assert cli.main(["operator"]) == 0
        assert given == [
            main.Options(
                kubeconfig="k", context="c", namespaces=("a", "b"), listen="[::]:1", workers=2, writes=3,
                progress_seconds=5.0, allot_ports=True, log_level="debug", log_format="json",
            )
        ]  # fmt: skip
        assert cli.main(["operator", "--workers", "9", "-n", "z"]) == 0
        assert (given[1].workers, given[1].namespaces) == (9, ("z",))

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("LOG_FORMAT", "xml", "DISTTRAIN_LOG_FORMAT is 'xml'; it may be plain, json"),
            ("LOG_LEVEL", "loud", "DISTTRAIN_LOG_LEVEL is 'loud'; it may be debug, info, warning, error"),
            ("ALLOT_PORTS", "maybe", "DISTTRAIN_ALLOT_PORTS is 'maybe'; it may be true or false"),
        ],
    )
    def test_an_environment_that_is_wrong(
        self, name: str, value: str, words: str, given: list[main.Options],
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        monkeypatch.setenv(f"DISTTRAIN_{name}", value)
        assert cli.main(["operator"]) == 2
        assert words in capsys.readouterr().err
        assert not given

    def test_trouble_at_the_start(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        for error, words in (
            (LoginError("no credentials"), "no credentials"),
            (OSError(98, "address in use"), "cannot listen on 127.0.0.1:8080"),
        ):

            def run(options: main.Options, error: Exception = error) -> int:
                raise error

            monkeypatch.setattr(main, "run", run)
            assert cli.main(["operator"]) == 1
            assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (310, "5m10s"), (700, "11m"), (11_000, "3h"), (200_000, "2d")],
)
def test_spans(seconds: float, text: str) -> None:
    assert console.span(seconds) == text


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200)])
def test_durations(text: str, seconds: float) -> None:
    assert run._duration(text) == seconds


def test_mappings(tmp_path: Path) -> None:
    assert console.mapping(f"/app={tmp_path}") == ("/app", tmp_path)
