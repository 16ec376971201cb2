"""The demo from end to end in a small setting, and the numbers on its page."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path

import pytest
import torch

from onefold.demo import demo
from onefold.demo.seed import STUDENTS, Whole
from onefold.demo.speed import times
from onefold.demo.workers import run_seeds
from onefold.engine import Interrupted
from onefold.recipe import Recipe
from onefold.recipes import digits
from onefold.report import Section
from onefold.run import RunFolder


def small() -> Recipe:
    recipe = digits()
    optim = dataclasses.replace(recipe.optim, warmup_epochs=0, batch_size=200)
    return dataclasses.replace(recipe, network="mlp", epochs=2, optim=optim)


class Recorded:
    """A stage that keeps what it is told."""

    def __init__(self, title: str = "") -> None:
        self.titles, self.shares = [title], [0.0]

    def title(self, text: str) -> None:
        self.titles.append(text)

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:  # noqa: ARG002
        self.shares.append(done / total)

    def message(self, text: str) -> None:
        pass


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Section], dict[str, Recorded]]:
    stages: dict[str, Recorded] = {}

    def stage(title: str) -> Recorded:
        stages[title] = Recorded(title)
        return stages[title]

    page, sections = demo(tmp_path_factory.mktemp("demo"), seeds=2, workers=1, recipe=small(), stage=stage)
    return page, sections, stages


def test_the_table_has_the_rows_and_columns_of_the_story(
    outcome: tuple[Path, list[Section], dict[str, Recorded]],
) -> None:
    page, (section,), _ = outcome
    assert [row.label for row in section.rows] == [
        "single network",
        "ensemble of 4",
        "KD",
        "LatentBE",
        "LatentBE + TDiv-SDiv",
    ]
    assert [column.key for column in section.columns] == ["acc", "nll", "ece", "cnll", "cece", "ms"]
    assert [row.networks for row in section.rows] == [8, 2, 2, 2, 2]
    assert section.rows[0].examples == 1197
    assert page.is_file()


def test_the_numbers_are_those_of_the_runs(outcome: tuple[Path, list[Section], dict[str, Recorded]]) -> None:
    page, (section,), _ = outcome
    for row, student in zip(section.rows[2:], STUDENTS, strict=True):
        for index, seed in enumerate(("seed-0", "seed-1")):
            metrics = RunFolder(page.parent / seed / student.folder).result["metrics"]
            for key in ("acc", "nll", "ece", "cnll", "cece"):
                assert row.values[key][index] == pytest.approx(metrics[key])


def test_seeds_are_different_and_students_learn_from_their_own_teachers(
    outcome: tuple[Path, list[Section], dict[str, Recorded]],
) -> None:
    page, (section,), _ = outcome
    assert len(set(section.rows[0].values["nll"])) == 8
    assert section.rows[2].values["nll"][0] != section.rows[2].values["nll"][1]
    for seed in ("seed-0", "seed-1"):
        assert seed in RunFolder(page.parent / seed / "kd").about["teachers"]


def test_an_ensemble_takes_longer_than_one_network(outcome: tuple[Path, list[Section], dict[str, Recorded]]) -> None:
    _, (section,), _ = outcome
    milliseconds = {row.label: row.mean("ms") or 0.0 for row in section.rows}
    assert milliseconds["ensemble of 4"] > 1.5 * milliseconds["single network"] > 0
    assert all(row.deviation("ms") is None for row in section.rows)


def test_the_page_is_whole_without_a_network(outcome: tuple[Path, list[Section], dict[str, Recorded]]) -> None:
    text = outcome[0].read_text()
    assert "http://" not in text
    assert "https://" not in text
    assert text.count("<svg") == 5
    assert "<script" not in text


def test_progress_grows_from_nothing_to_all(outcome: tuple[Path, list[Section], dict[str, Recorded]]) -> None:
    stages = outcome[2]
    assert list(stages) == ["seed 0", "seed 1"]
    for seed, stage in enumerate(stages.values()):
        assert stage.shares == sorted(stage.shares)
        assert stage.shares[-1] == 1.0
        assert stage.shares.count(1.0) == 1
        assert stage.titles[1:] == [
            *(f"seed {seed}, teacher {m}" for m in range(4)),
            *(f"seed {seed}, {student.folder}" for student in STUDENTS),
        ]


def test_the_whole_counts_parts_by_their_share() -> None:
    stage = Recorded()
    whole = Whole(stage, [1.0, 3.0])
    whole.begin("a")
    whole.update(1, 2, 0, 0, 0)
    whole.begin("b")
    whole.update(2, 3, 0, 0, 0)
    assert stage.shares[1:] == [0.125, 0.75]


def test_a_second_time_changes_nothing_but_the_clock(
    outcome: tuple[Path, list[Section], dict[str, Recorded]],
) -> None:
    page, (before,), _ = outcome
    files = sorted(page.parent.rglob("model.safetensors"))
    stamps = [file.stat().st_mtime_ns for file in files]
    _, (after,) = demo(page.parent, seeds=2, workers=1, recipe=small())
    assert [file.stat().st_mtime_ns for file in files] == stamps
    assert [row.values["nll"] for row in after.rows] == [row.values["nll"] for row in before.rows]


def test_workers_give_the_same_bits_and_pass_a_signal_on(
    outcome: tuple[Path, list[Section], dict[str, Recorded]], tmp_path: Path
) -> None:
    class Impatient(Recorded):
        def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
            if len(self.shares) == 1:
                os.kill(os.getpid(), signal.SIGINT)
            super().update(done, total, loss, lr, rate)

    jobs = [(dataclasses.replace(small(), seed=seed), tmp_path / f"seed-{seed}") for seed in range(2)]
    with pytest.raises(Interrupted, match="the same command goes on from there"):
        run_seeds(jobs, 2, Impatient)
    run_seeds(jobs, 1, Recorded)
    for name in ("seed-0/teachers/teacher-3", "seed-1/kd", "seed-1/latentbe-tdiv-sdiv"):
        ours, theirs = (folder / name / "model.safetensors" for folder in (tmp_path, outcome[0].parent))
        assert ours.read_bytes() == theirs.read_bytes()


def test_a_worker_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "seed-0").write_text("a file where a folder should be")
    jobs = [(dataclasses.replace(small(), seed=seed), tmp_path / f"seed-{seed}") for seed in range(2)]
    with pytest.raises(ValueError, match="cannot write to"):
        run_seeds(jobs, 2, Recorded)


def test_times_are_milliseconds_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(float(second) for second in range(1000))
    monkeypatch.setattr("onefold.demo.speed.time.perf_counter", lambda: next(clock))
    assert times({"a": lambda x: x}, torch.zeros(4, 1)) == {"a": 250.0}
