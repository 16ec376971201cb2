"""Signals, and how to go on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from onefold import cli
from onefold.cli import main, run_train
from onefold.engine import train_teachers

Capture = pytest.CaptureFixture[str]
QUICK = ["--network", "mlp", "--epochs", "1", "--optim.warmup-epochs", "0", "--recipe.members", "2"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_outside_of_training_is_answered_too(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """While data are read, or the best network is evaluated at the end."""

    def interrupted(*_: Any, **__: Any) -> Any:
        signal.raise_signal(number)

    words, before = ["train", "digits", *QUICK, "--out", str(tmp_path)], signal.getsignal(signal.SIGTERM)
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for place in ("onefold.cli.run_train.source_of", "onefold.engine.result.answers_of_all"):
        with monkeypatch.context() as patch:
            patch.setattr(place, interrupted)
            assert main(words) == 130
        told = capsys.readouterr().err
        assert "onefold: interrupted; run the same command again to resume from the last checkpoint\n" in told
        assert "Traceback" not in told
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    signal.signal(signal.SIGINT, ignored[0])
    signal.signal(signal.SIGHUP, ignored[1])
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_interrupted_run_says_how_to_go_on(
    teachers: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient:
        def update(self, *_: float) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        def message(self, text: str) -> None:
            pass

    def interrupted(*arguments: Any, **options: Any) -> Any:
        return train_teachers(*arguments, **options | {"progress": Impatient()})

    words = ["train", "digits", *QUICK, "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(run_train, "train_teachers", interrupted)
        assert main(words) == 130
    told = capsys.readouterr().err
    assert "; run the same command again to resume" in told
    assert "Traceback" not in told
    assert main(words) == 0
    for m in range(2):
        ours, theirs = (folder / f"teacher-{m}" / "model.safetensors" for folder in (tmp_path, teachers))
        assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "digits"], "interrupted\n"),
        (["evaluate", "runs"], "interrupted; run the same command again to measure the rest\n"),
        (["demo"], "interrupted; run the same command again to resume from the last checkpoint\n"),
    ],
)
def test_only_what_has_checkpoints_speaks_of_them(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "carry_out", stop)
    assert main(words) == 130
    assert capsys.readouterr().err.endswith(f"onefold: {said}")
