"""The demo from end to end in a small setting, and the numbers on its page."""

from __future__ import annotations

import dataclasses
import os
import queue
import signal
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from onefold.cli import main
from onefold.demo import demo
from onefold.demo.speed import times
from onefold.demo.tasks import Task, Teacher, Whole, shared_out, student_tasks, teacher_tasks
from onefold.demo.workers import follow, run_tasks
from onefold.engine import Interrupted
from onefold.recipe import Recipe
from onefold.recipes import digits
from onefold.report import Section
from onefold.run import RunFolder

STUDENTS = ("kd", "latentbe", "latentbe-tdiv-sdiv")


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
            metrics = RunFolder(page.parent / seed / student).result["metrics"]
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
    (stage,) = outcome[2].values()
    assert stage.shares == sorted(stage.shares)
    assert stage.shares[-1] == 1.0
    assert stage.shares.count(1.0) == 1
    teachers = [f"seed {seed}, teacher {m}" for seed in range(2) for m in range(4)]
    assert stage.titles[1:] == [*teachers, *(f"seed {seed}, {student}" for seed in range(2) for student in STUDENTS)]


def test_the_whole_counts_tasks_by_their_cost() -> None:
    stage = Recorded()
    tasks = [Teacher(small(), Path(), 0, cost=1.0), Teacher(small(), Path(), 1, cost=3.0)]
    whole = Whole(stage, tasks)
    whole.part = 1
    whole.update(1, 2, 0, 0, 0)
    assert stage.shares[-1] == pytest.approx((1 + 0.99 * 1.5) / 4, abs=1e-3)


def test_tasks_are_shared_out_evenly() -> None:
    tasks: list[Task] = [task for seed in range(3) for task in student_tasks(small(), Path(str(seed)))]
    lists = shared_out(tasks, 2)
    assert sorted(task.title for own in lists for task in own) == sorted(task.title for task in tasks)
    one, other = (sum(task.cost for task in own) for own in lists)
    assert abs(one - other) <= min(task.cost for task in tasks)


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
        sent = False

        def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:
            if not Impatient.sent:  # a second signal would act at once
                os.kill(os.getpid(), signal.SIGINT)
            Impatient.sent = True
            super().update(done, total, loss, lr, rate)

    jobs = [(dataclasses.replace(small(), seed=seed), tmp_path / f"seed-{seed}") for seed in range(2)]
    teachers = [task for job in jobs for task in teacher_tasks(*job)]
    students = [task for job in jobs for task in student_tasks(*job)]
    with pytest.raises(Interrupted, match="the same command goes on from there"):
        run_tasks(teachers, students, 2, Impatient)
    assert not (tmp_path / "seed-1" / "latentbe").exists()
    run_tasks(teachers, students, 1, Recorded)
    for name in ("seed-0/teachers/teacher-3", "seed-1/kd", "seed-1/latentbe-tdiv-sdiv"):
        ours, theirs = (folder / name / "model.safetensors" for folder in (tmp_path, outcome[0].parent))
        assert ours.read_bytes() == theirs.read_bytes()


def test_a_worker_that_fails_says_why() -> None:
    ended = cast(BaseProcess, SimpleNamespace(is_alive=lambda: False, exitcode=0, pid=None))
    for failure in (ValueError("cannot write to x"), RuntimeError("a bug")):
        told: Any = queue.Queue()
        told.put((0, "title", ("seed 0, teacher 1",)))
        told.put((0, "failed", (failure,)))
        with pytest.raises(type(failure), match=str(failure)):
            follow([ended], told, Recorded, lambda: None)


def test_a_worker_that_is_killed_is_noticed() -> None:
    killed = cast(BaseProcess, SimpleNamespace(is_alive=lambda: False, exitcode=-9, pid=None))
    nothing: Any = queue.Queue()
    with pytest.raises(RuntimeError, match="a worker process died"):
        follow([killed], nothing, Recorded, lambda: None)


def test_times_are_milliseconds_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(float(second) for second in range(1000))
    monkeypatch.setattr("onefold.demo.speed.time.perf_counter", lambda: next(clock))
    assert times({"a": lambda x: x}, torch.zeros(4, 1)) == {"a": 250.0}


def test_the_command_prints_the_table_and_last_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.demo.digits", small)
    assert main(["demo", "--seeds", "1", "--workers", "1", "--out", str(tmp_path / "out")]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == str(tmp_path / "out" / "report.html")
    for part in ("single network", "ensemble of 4", "KD", "LatentBE + TDiv-SDiv", "ACC %", "cECE", "ms/image"):
        assert part in told.out
    assert "1,197 test images" in told.out
    assert "memory" in told.err
