"""Teachers that are asked for are there, or somebody says which are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onefold.engine import evaluate_run, load_teachers
from onefold.run import RunFolder


def finished(path: Path, draws: np.random.Generator) -> None:
    run = RunFolder(path)
    path.mkdir(parents=True)
    run.write_json("recipe.json", {})
    logits = draws.standard_normal((20, 3))
    run.write_predictions("test", np.arange(20) % 3, logits - np.log(np.exp(logits).sum(1, keepdims=True)))
    run.write_json("result.json", {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two teachers."""
    draws = np.random.default_rng(0)
    for m in range(2):
        finished(tmp_path / f"teacher-{m}", draws)
    return tmp_path


def test_the_first_teachers(folder: Path) -> None:
    assert evaluate_run(folder, 1) == pytest.approx(evaluate_run(folder / "teacher-0"), rel=1e-6)
    assert evaluate_run(folder, 2) == evaluate_run(folder) != evaluate_run(folder, 1)


def test_those_that_are_there_without_the_first(folder: Path) -> None:
    (folder / "teacher-0").rename(folder / "elsewhere")
    assert evaluate_run(folder) == pytest.approx(evaluate_run(folder / "teacher-1"), rel=1e-6)
    with pytest.raises(ValueError, match=r"teachers: expected 1 teachers in .* got no teacher-0"):
        evaluate_run(folder, 1)


@pytest.mark.parametrize("members", [0, -1, True, 1.5, "2"])
def test_a_number_that_is_none_is_refused(members: int, folder: Path) -> None:
    for ask in (evaluate_run, lambda folder, members: load_teachers(folder, members=members)):
        with pytest.raises(ValueError, match=f"members: expected a whole number of at least 1, got {members!r}"):
            ask(folder, members)


def test_teachers_that_are_not_there_are_named(folder: Path) -> None:
    with pytest.raises(
        ValueError, match=r"teachers: expected 4 teachers in .* got no teacher-2, teacher-3; train them"
    ):
        evaluate_run(folder, 4)
    (folder / "teacher-1" / "result.json").unlink()
    with pytest.raises(ValueError, match=r"teacher-1 in .* is not finished"):
        evaluate_run(folder, 2)
    assert evaluate_run(folder, 1)["count"] == 20
