"""The demo from end to end in a small setting, and the numbers on its page."""

from __future__ import annotations

import dataclasses
import html
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
import torch

from onefold.cli import main
from onefold.cli.arguments import parse
from onefold.cli.requests import Demo
from onefold.demo import SEEDS, demo
from onefold.demo.board import Board
from onefold.demo.crew import STILL, TRIES, Worker, end, listen, replace_lost, run_tasks
from onefold.demo.speed import times
from onefold.demo.tasks import Student, Task, Teacher, source_of, student_tasks, teacher_tasks
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
        self.titles, self.shares, self.messages = [title], [0.0], list[str]()

    def title(self, text: str) -> None:
        self.titles.append(text)

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:  # noqa: ARG002
        self.shares.append(done / total)

    def count(self, done: int, total: int, detail: str = "") -> None:
        self.update(done, total, 0, 0, 0)
        self.titles.append(detail)

    def message(self, text: str) -> None:
        self.messages.append(text)


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
    assert text.count("<figure>") == 2 * 5 + 3 + 2  # reliability before and after scaling; ensembles by size; losses
    assert text.count("<script") == 1  # sorts tables; nothing is fetched


def test_progress_grows_from_nothing_to_all(outcome: tuple[Path, list[Section], dict[str, Recorded]]) -> None:
    whole, worker = outcome[2]["demo"], outcome[2]["worker"]
    assert whole.shares == sorted(whole.shares)
    assert whole.shares[-1] == 1.0
    assert whole.titles[-1] == "14 of 14 networks"
    assert worker.shares.count(1.0) == 14
    titles = [f"seed {seed}, {task}" for seed in range(2) for task in (*(f"teacher {m}" for m in range(4)), *STUDENTS)]
    assert sorted(worker.titles[1:]) == sorted(titles)


def test_the_board_counts_tasks_by_their_cost() -> None:
    tasks: list[Task] = [Teacher(small(), Path(), 0, cost=1.0), Teacher(small(), Path(), 1, cost=3.0)]
    board = Board(tasks)
    board.done(tasks[0])
    board.reached(tasks[1], 0.5)
    done, total, detail = board.progress
    assert done / total == pytest.approx((1 + 0.99 * 1.5) / 4, abs=1e-3)
    assert detail == "1 of 2 networks"
    assert not board.finished


def test_students_wait_for_the_teachers_of_their_seed() -> None:
    tasks = [
        task for seed in range(2) for make in (teacher_tasks, student_tasks) for task in make(small(), Path(str(seed)))
    ]
    board = Board(tasks)
    running: list[Task] = []
    while (task := board.next()) is not None:
        running.append(task)
    assert running == [task for task in tasks if isinstance(task, Teacher)]
    for teacher in running[:4]:
        board.done(teacher)
    costs = []
    while (task := board.next()) is not None:
        assert isinstance(task, Student)
        assert task.folder == Path("0")
        costs.append(task.cost)
    assert len(costs) == 3
    assert costs == sorted(costs, reverse=True)
    assert board.give_back(running[4]) == 1
    assert board.next() is running[4]
    assert board.give_back(running[4]) == 2


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
    tasks = [task for job in jobs for task in (*teacher_tasks(*job), *student_tasks(*job))]
    with pytest.raises(Interrupted, match="with progress saved; run the same command again to resume"):
        run_tasks(tasks, 2, Impatient)
    assert not multiprocessing.active_children()
    assert not (tmp_path / "seed-1" / "latentbe").exists()
    run_tasks(tasks, 2, Recorded)
    assert not multiprocessing.active_children()
    for name in ("seed-0/teachers/teacher-3", "seed-1/kd", "seed-1/latentbe-tdiv-sdiv"):
        ours, theirs = (folder / name / "model.safetensors" for folder in (tmp_path, outcome[0].parent))
        assert ours.read_bytes() == theirs.read_bytes()


def test_a_worker_that_fails_says_why(tmp_path: Path) -> None:
    broken = dataclasses.replace(small(), network="nothing")
    with pytest.raises(ValueError, match="nothing"):
        run_tasks(teacher_tasks(broken, tmp_path), 1, Recorded)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write"):
        run_tasks(teacher_tasks(small(), tmp_path / "file"), 1, Recorded)


@pytest.mark.parametrize("in_this_process", [True, False])
def test_what_a_run_notes_is_shown(in_this_process: bool, tmp_path: Path) -> None:
    """That its teachers have learnt nothing; but not that it goes on, or which one it is."""
    recipe = dataclasses.replace(small(), epochs=1, optim=dataclasses.replace(small().optim, lr=1e-9, warmup_epochs=0))
    for task in teacher_tasks(recipe, tmp_path):
        task.train(source_of(recipe), Recorded())
    shown, (kd, *_) = Recorded(), student_tasks(recipe, tmp_path)
    board, crew = Board([kd]), [Worker(lambda _: shown, in_this_process=in_this_process)]
    try:
        while not board.finished:
            listen(crew, board)
    finally:
        end(crew)
    (message,) = shown.messages
    assert message.startswith("seed 0, kd: teachers 0, 1, 2, 3 look untrained: accuracy ")


def test_a_note_that_names_flags_says_whose_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.engine.result.warning_of", lambda *_, **__: "averaging hurts; train longer (--epochs)")
    shown, recipe = Recorded(), dataclasses.replace(small(), epochs=1)
    run_tasks([*teacher_tasks(recipe, tmp_path), student_tasks(recipe, tmp_path)[1]], 1, lambda _: shown)
    assert shown.messages[-1] == "seed 0, latentbe: averaging hurts; train longer (--epochs) (flags of onefold distill)"


def test_a_worker_that_dies_is_replaced_and_the_bits_are_the_same(
    outcome: tuple[Path, list[Section], dict[str, Recorded]], tmp_path: Path
) -> None:
    """The first process is killed as soon as it has a task, and the second one ends it."""

    class Enough(Exception):
        pass

    killed: list[int] = []
    messages: list[str] = []

    class Cruel(Recorded):
        def title(self, text: str) -> None:
            super().title(text)
            if not killed and text == "seed 1, teacher 2":
                (child,) = multiprocessing.active_children()
                assert child.pid is not None
                killed.append(child.pid)
                os.kill(child.pid, signal.SIGKILL)

        def count(self, done: int, total: int, detail: str = "") -> None:  # noqa: ARG002
            if detail.startswith("1 of"):
                raise Enough

        def message(self, text: str) -> None:
            messages.append(text)

    # A task that keeps this process busy, so that the other one is a worker's.
    long = Teacher(dataclasses.replace(small(), epochs=100_000), tmp_path / "long", 0, cost=2.0)
    short = Teacher(dataclasses.replace(small(), seed=1), tmp_path / "seed-1", 2)
    with pytest.raises(Enough):
        run_tasks([long, short], 2, Cruel)
    assert not multiprocessing.active_children()
    (message,) = messages
    assert message.startswith("seed 1, teacher 2: the worker died (killed by SIGKILL); another one resumes")
    name = "seed-1/teachers/teacher-2/model.safetensors"
    assert (tmp_path / name).read_bytes() == (outcome[0].parent / name).read_bytes()
    assert not RunFolder(tmp_path / "long" / "teachers" / "teacher-0").finished


def test_a_worker_that_stands_still_is_replaced(tmp_path: Path) -> None:
    shown = Recorded()
    tasks = teacher_tasks(small(), tmp_path)[:1]
    board, crew = Board(tasks), [Worker(lambda _: shown, in_this_process=False)]
    (first,) = crew
    assert first.process is not None
    assert first.process.pid is not None
    try:
        while first.task is None:
            listen(crew, board)
        os.kill(first.process.pid, signal.SIGSTOP)
        replace_lost(crew, board, lambda _: shown, STILL)
        assert crew == [first]
        listen(crew, board)
        assert 0 < first.silent < 1
        first.silent += STILL  # as if that long had passed
        replace_lost(crew, board, lambda _: shown, STILL)
        assert crew[0] is not first
        assert not first.process.is_alive()
        assert board.next() is tasks[0]
        assert shown.messages[-1].startswith("seed 0, teacher 0: the worker hung; another one")
    finally:
        end(crew)
    assert not multiprocessing.active_children()


def test_workers_that_are_lost_again_and_again_are_an_error(tmp_path: Path) -> None:
    class Merciless(Recorded):
        def update(self, *_: object) -> None:
            for child in multiprocessing.active_children():
                child.kill()

    with pytest.raises(RuntimeError, match=f"after {TRIES - 1} before it had failed; is there enough memory"):
        run_tasks(teacher_tasks(dataclasses.replace(small(), epochs=100_000), tmp_path), 2, Merciless)


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
    assert "1,197 test examples" in told.out
    lines = told.err.splitlines()
    assert lines[:3] == [
        "data      digits, 8 x 8 pixels, 1 channel, 10 classes",
        "sizes     train 400, val 200, test 1,197",
        "training  1 seed of 4 teachers and 3 students: wrn10x1, 77,562 parameters",
    ]
    assert lines[3].startswith(("demo", "worker", "seed 0"))
    end = lines.index(
        "one seed: differences between students may be noise; ± is the standard deviation over the networks of a row: "
        "4 in single network, 1 in the others"
    )
    page = html.unescape((tmp_path / "out" / "report.html").read_text())
    for sentence, label in zip(lines[end + 1 : end + 3], ("LatentBE + TDiv-SDiv", "KD"), strict=True):
        assert sentence.startswith(label)
        assert "NLL" in sentence
        assert sentence in page
    assert lines[end + 4] == "next: onefold train cifar10 --download"


def test_the_command_repeats_as_often_as_the_function() -> None:
    request = parse(["demo"])
    assert isinstance(request, Demo)
    assert request.seeds == SEEDS
