from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from onefold.cli import main

QUICK = ["--network", "mlp", "--epochs", "1", "--optim.warmup-epochs", "0", "--recipe.members", "2"]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[[Sequence[str]], str]:
    """The sentence that a mistake is answered with."""

    def sentence(words: Sequence[str]) -> str:
        assert main(words) == 2
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        assert told.err.count("onefold: ") == 1, "one sentence"
        assert "examples/s" not in told.err, "before any training"
        return told.err.splitlines()[-1].removeprefix("onefold: ")

    return sentence


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two teachers, trained by the command."""
    folder = tmp_path_factory.mktemp("runs") / "teachers"
    assert main(["train", "digits", *QUICK, "--out", str(folder)]) == 0
    return folder
