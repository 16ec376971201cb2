"""The paper's tables as runs: every row is there, in order, and carrying them out is what train and distill do."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from onefold.cli import main
from onefold.cli.plans import progress, run_table
from onefold.data import Arrays, from_arrays
from onefold.data.place import place_of
from onefold.engine import Diverged, Interrupted, distill_run, train_teachers
from onefold.engine.cost.passes import passes_of_step
from onefold.paper import TABLES as PAPER
from onefold.paper import entries
from onefold.recipe import DistillRecipe, Recipe, to_dict
from onefold.recipes import cifar10, cifar100, digits
from onefold.reproduce import TABLES, Changes, Clock, Reproduced, Table, reproduce, tasks_of
from onefold.reproduce.carry import Heading, Outcome, Work, carry_out, groups, together
from onefold.reproduce.tables import SINGLE_KD, Setting, StudentRow
from onefold.run import RunFolder

DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "TinyImageNet", "imagenet": "ImageNet-1k"}
NETWORKS = {"wrn28x1": "WRN28x1", "wrn28x4": "WRN28x4", "resnet18-small": "R18", "resnet50": "R50"}
KNOWN = {"KD": "kd", "AE-KD": "aekd", "Proxy-EnD2": "proxy-end2", "KD + BE": "be", "KD + LatentBE": "latentbe"}


class Kept:
    """A stage that keeps its titles."""

    def __init__(self) -> None:
        self.titles, self.messages = list[str](), list[str]()

    def title(self, text: str) -> None:
        self.titles.append(text)

    def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None: ...

    def count(self, done: int, total: int, detail: str = "") -> None: ...

    def message(self, text: str) -> None:
        self.messages.append(text)


def small() -> Recipe:
    recipe = digits()
    optim = dataclasses.replace(recipe.optim, warmup_epochs=0, batch_size=100)
    return dataclasses.replace(recipe, network="mlp", epochs=2, eval_every=1, optim=optim)


ROWS = (StudentRow("kd", "kd", "none", 2), StudentRow("latentbe-tdiv-sdiv", "latentbe", "tdiv-sdiv", 2), SINGLE_KD)
TINY = Table((Setting(small, 3, 2, ROWS),), seeds=2)
MINE = dataclasses.replace(small().data, source="npz:mine.npz")


def wanted(method: str, teacher: str) -> tuple[str, str, int] | None:
    """Method, perturbation and teachers of a row of the paper; None of teachers and ensembles."""
    if method.startswith(("DE-", "Base")):
        return None
    if method == "Single KD":
        return "kd", "none", 1
    members = int(teacher.removeprefix("DE-"))
    method = method.replace("LatentBE-4", "KD + LatentBE")
    for ending in ("ConfODS", "TDiv-SDiv", "TDiv"):
        if method.endswith(f" + {ending}"):
            return KNOWN[method.removesuffix(f" + {ending}")], ending.lower(), members
    return KNOWN[method], "none", members


@pytest.mark.parametrize("name", PAPER)
def test_every_row_of_the_paper_is_a_run(name: str, tmp_path: Path) -> None:
    tasks = tasks_of(TABLES[name], tmp_path, Changes())
    students, teachers = set(), set()
    for task in tasks:
        place = DATA[task.recipe.data.source], NETWORKS[task.recipe.network]
        if task.member is None:
            distill = task.recipe.distill
            students.add((*place, distill.method, distill.perturbation, task.recipe.members))
        else:
            teachers.add((*place, task.member))
    rows = [entry for entry in entries() if entry.table == name]
    expected = set()
    for row in rows:
        place = row.dataset.removesuffix("-C"), row.network
        student = wanted(row.method, row.teacher)
        if student is not None:
            expected.add((*place, *student))
        elif row.method.startswith("DE-"):
            count = int(row.method.removeprefix("DE-").split()[0])
            assert {(*place, m) for m in range(count)} <= teachers
    assert students == expected
    assert {place[:2] for place in teachers} == {(row.dataset.removesuffix("-C"), row.network) for row in rows}


def test_tables_share_teachers_and_runs(tmp_path: Path) -> None:
    runs = {name: {t.run: t.recipe for t in tasks_of(table, tmp_path, Changes())} for name, table in TABLES.items()}
    assert set(runs["ablation"]) > {tmp_path / "cifar100" / "teachers" / "teacher-0"}
    for one in runs.values():
        for other in runs.values():
            for run in set(one) & set(other):
                assert one[run] == other[run]
    assert set(runs["costs"]) < set(runs["cifar100"])


def test_recipes_are_the_papers(tmp_path: Path) -> None:
    for task in tasks_of(TABLES["corrupted"], tmp_path, Changes()):
        base = cifar10() if task.recipe.name == "cifar10" else cifar100()
        distill = dataclasses.replace(
            base.distill, method=task.recipe.distill.method, perturbation=task.recipe.distill.perturbation
        )
        same = dataclasses.replace(base, members=task.recipe.members, seed=task.recipe.seed)
        assert task.recipe == (same if task.member is not None else dataclasses.replace(same, distill=distill))


def test_order_and_choice(tmp_path: Path) -> None:
    rows = [task.row for task in tasks_of(TABLES["cifar10"], tmp_path, Changes(members=(4,)))]
    assert list(dict.fromkeys(rows))[:4] == ["teachers", "kd", "latentbe", "latentbe-tdiv-sdiv"]
    assert rows.count("teachers") == 4
    assert rows.count("kd") == 4
    chosen = tasks_of(TABLES["cifar10"], tmp_path, Changes(rows=("kd",), seeds=1))
    assert [task.row for task in chosen] == ["teachers"] * 8 + ["kd"] * 2
    only = tasks_of(TABLES["cifar10"], tmp_path, Changes(rows=("teachers",)))
    assert [task.member for task in only] == list(range(8))
    short = tasks_of(TABLES["cifar10"], tmp_path, Changes(epochs=20))
    assert {task.teachers for task in short} == {tmp_path / "cifar10-20-epochs" / "teachers"}
    assert {(task.recipe.epochs, task.recipe.optim.warmup_epochs) for task in short} == {(20, 2.0)}
    with pytest.raises(ValueError, match="there is no 'latentb'; did you mean 'latentbe'"):
        tasks_of(TABLES["cifar10"], tmp_path, Changes(rows=("latentb",)))
    with pytest.raises(ValueError, match="expected some of 4, 8, got 3"):
        tasks_of(TABLES["cifar10"], tmp_path, Changes(members=(3,)))


@pytest.mark.parametrize(
    ("method", "perturbation", "passes"),
    [
        ("kd", "none", 4 + 3),
        ("latentbe", "none", 4 + 12),
        ("latentbe", "confods", 4 + 12 + 1 + 1),
        ("latentbe", "tdiv-sdiv", 22),
        ("be", "none", 4 + 12),
    ],
)
def test_passes_of_a_step(method: str, perturbation: str, passes: int) -> None:
    recipe = dataclasses.replace(cifar10(), distill=DistillRecipe(method, perturbation))
    assert passes_of_step(recipe, student=True) == passes
    assert passes_of_step(recipe, student=False) == 3


def test_teachers_come_before_all_students_of_a_setting(tmp_path: Path) -> None:
    tasks = tasks_of(TABLES["cifar10"], tmp_path, Changes(rows=("kd", "latentbe"), seeds=3, device="cpu"))
    teachers, students = groups(tasks)
    assert {task.row for task in teachers} == {"teachers"}
    assert {task.row for task in students} == {"kd", "latentbe"}
    assert teachers + students == tasks


def test_as_many_at_once_as_the_largest_of_them_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def most(name: str, rows: tuple[str, ...], device: str = "cuda", room: float = 80e9) -> list[int]:
        monkeypatch.setattr("onefold.engine.from_recipe.room_on", lambda d: int(room) if d.type == "cuda" else None)
        monkeypatch.setattr("onefold.engine.cost.memory.device_named", lambda _: torch.device(device))
        monkeypatch.setattr("onefold.engine.cost.memory.precision_on", lambda *_: "bf16")
        tasks = tasks_of(TABLES[name], tmp_path, Changes(rows=rows, members=(4,), seeds=2, precision="bf16"))
        classes = {"cifar10": 10, "cifar100": 100}[name]
        data = Arrays(torch.rand(classes, 3, 32, 32), torch.arange(classes))
        source = from_arrays(name, data, data, data, tuple(map(str, range(classes))))
        works = [Work(group, source, Clock(), Heading(Kept(), tasks), Outcome()) for group in groups(tasks)]
        return [together(work, torch.device(device)) for work in works]

    everything = ("kd", "aekd", "latentbe-tdiv-sdiv")
    assert most("cifar10", everything) == [4, 4]
    assert most("cifar100", ("latentbe-tdiv-sdiv",)) == [4, 1]  # teachers of WRN28x4 still leave room
    assert most("cifar10", everything, "cpu") == [1, 1]
    assert most("cifar10", everything, room=4e9) == [4, 2]  # of a student 1.6 GB were measured
    assert most("cifar10", ("kd",), room=0.1e9) == [1, 1]


def weights(root: Path) -> dict[str, dict[str, bytes]]:
    found = {}
    for path in sorted(root.rglob("model.safetensors")):
        found[str(path.parent.relative_to(root))] = {k: v.numpy().tobytes() for k, v in load_file(path).items()}
    return found


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("done")
    made = reproduce("tiny", out, stage=Kept(), table=TINY)
    assert made.page == out / "tiny.html"
    assert not made.outcome.failures
    assert not made.outcome.stopped
    return out


def test_it_does_what_train_and_distill_do(done: Path, tmp_path: Path) -> None:
    recipe = dataclasses.replace(small(), members=3)
    train_teachers(recipe, tmp_path / "teachers", members=[0, 1])
    for seed in range(2):
        for row in ROWS:
            run = tmp_path / f"seed-{seed}" / f"{row.name}-of-{row.members}"
            distill_run(row.recipe(recipe, seed), run, tmp_path / "teachers")
    assert weights(done / "digits") == weights(tmp_path)
    assert len(weights(tmp_path)) == 8


def test_what_is_done_is_left_and_the_report_comes_last(done: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*") if path.suffix in (".json", ".safetensors")}
    stage = Kept()
    made = reproduce("tiny", done, stage=stage, table=TINY)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert stage.titles == []
    (section,) = made.sections
    labels = ["single network", "ensemble of 2", "KD", "Single KD", "LatentBE + TDiv-SDiv"]
    assert sorted(row.label for row in section.rows) == sorted(labels)
    assert made.page is not None
    assert "LatentBE + TDiv-SDiv" in made.page.read_text()


def test_several_at_once_come_out_the_same(done: Path, tmp_path: Path) -> None:
    stage = Kept()
    reproduce("tiny", tmp_path, stage=stage, table=TINY, at_once=2)
    assert weights(tmp_path / "digits") == weights(done / "digits")
    assert stage.titles[:2] == ["1 of 8: digits, teacher 0", "1 of 8: digits, teacher 0 and 1 more at the same time"]
    assert stage.titles[-1].startswith("8 of 8: digits, ")
    assert "6 runs share cpu, at most 2 at a time" in stage.messages


class Counting(Clock):
    """A clock on which the time is over after so many looks at it."""

    def __init__(self, looks: int) -> None:
        super().__init__(minutes=1)
        self.looks = looks

    def over(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_it_stops_in_time_and_goes_on_to_the_same_end(done: Path, tmp_path: Path) -> None:
    tasks = tasks_of(TINY, tmp_path, Changes())
    stops = 0
    for _ in range(40):
        outcome = carry_out(tasks, at_once=2, clock=Counting(14), stage=Kept())
        stops += outcome.stopped
        if not outcome.stopped:
            break
    assert stops >= 3
    assert all(task.finished for task in tasks)
    assert weights(tmp_path / "digits") == weights(done / "digits")


def test_time_that_is_over_before_it_began(tmp_path: Path) -> None:
    tasks = tasks_of(TINY, tmp_path, Changes())
    outcome = carry_out(tasks, at_once=1, clock=Counting(0), stage=Kept())
    assert outcome.stopped
    assert not any(tmp_path.iterdir())
    assert Clock(None).over() is False
    assert Clock(1e-9).over() is True


def test_a_partial_run_says_how_far_it_is(tmp_path: Path) -> None:
    tasks = tasks_of(TINY, tmp_path, Changes())
    assert tasks[0].state() == ("to do", 0.0)
    carry_out(tasks, at_once=1, clock=Counting(6), stage=Kept())
    assert tasks[0].state() == ("at step 4 of 8", 0.5)


def test_one_that_diverges_does_not_hold_up_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tasks_of(TINY, tmp_path, Changes())
    from onefold.reproduce import carry

    def going(task, *rest):  # type: ignore[no-untyped-def]
        if task.row == "kd":
            raise Diverged("it went up")
        return usual(task, *rest)

    usual = carry.going
    monkeypatch.setattr(carry, "going", going)
    outcome = carry_out(tasks, at_once=2, clock=Clock(), stage=Kept())
    assert [failure.removeprefix("digits, ") for failure in outcome.failures] == [
        "kd of 2, seed 0: it went up",
        "kd of 2, seed 1: it went up",
    ]
    assert [task.row for task in tasks if not task.finished] == ["kd", "kd"]


def test_without_teachers_students_are_failures_not_crashes(tmp_path: Path) -> None:
    students = [task for task in tasks_of(TINY, tmp_path, Changes()) if task.member is None]
    outcome = carry_out(students, at_once=1, clock=Clock(), stage=Kept())
    assert len(outcome.failures) == len(students)
    assert "its teachers are not finished" in outcome.failures[0]


def test_ctrl_c_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    from onefold.reproduce import carry

    def stopped(*_: object) -> None:
        raise Interrupted("stopped by SIGINT", signal.SIGINT)

    monkeypatch.setattr(carry, "run_together", stopped)
    with pytest.raises(Interrupted):
        carry_out(tasks_of(TINY, tmp_path, Changes()), at_once=1, clock=Clock(), stage=Kept())


@pytest.mark.parametrize("other", [{"network": "wrn10x1"}, {"data": MINE}])
def test_another_recipe_in_the_folder_is_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    run = tmp_path / "digits" / "teachers" / "teacher-0"
    begun = dataclasses.replace(small(), members=3, **other)

    about = {"kind": "teacher", "member": 0, "data_place": place_of(begun.data.source)}
    RunFolder(run).begin(to_dict(begun), about, {})
    (task,) = (task for task in tasks_of(TINY, tmp_path, Changes()) if task.run == run)
    with pytest.raises(ValueError, match="was started with different settings"):
        task.check()
    with pytest.raises(ValueError, match="was started with different settings"):
        reproduce("tiny", tmp_path, stage=Kept(), table=TINY)


# The command line


DRY = ["reproduce", "cifar10", "--rows", "kd,latentbe-tdiv-sdiv", "--members", "4", "--seeds", "2", "--dry-run"]


def test_dry_run_has_a_line_for_each_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*DRY, "--out", str(tmp_path)]) == 0
    told = capsys.readouterr()
    lines = [re.split(r"  +", line.strip()) for line in told.out.splitlines() if " of " in line]
    assert lines == [
        ["cifar10, teachers", "0 of 4 networks", "2,400"],  # 200 epochs of 3 passes each
        ["cifar10, kd of 4", "0 of 2 seeds", "2,800"],
        ["cifar10, latentbe-tdiv-sdiv of 4", "0 of 2 seeds", "8,800"],  # 22 passes
        ["all", "0 of 8 runs", "14,000"],
    ]
    assert "8 runs, 0 of them done; 14,000 of 14,000 passes left" in told.err
    assert not any(tmp_path.iterdir())


def test_dry_run_lists_every_run_with_its_folder_if_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*DRY, "--out", str(tmp_path), "--folders"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "to do" in line]
    assert len(lines) == 4 + 4
    assert "4,400" in lines[-1]  # 200 epochs of 22 passes
    assert lines[-1].strip().endswith(str(tmp_path / "cifar10" / "seed-1" / "latentbe-tdiv-sdiv-of-4"))
    assert not any(tmp_path.iterdir())


def test_folders_are_whole_where_there_is_no_room_beside_runs(tmp_path: Path) -> None:
    (task, *_) = tasks_of(TABLES["cifar10"], tmp_path, Changes())
    with io.StringIO() as narrow, io.StringIO() as wide:
        for file, width in ((narrow, 20 + len(str(task.run))), (wide, 40 + len(str(task.run)))):
            Console(file=file, width=width).print(run_table([task], [], width))
        assert [line.strip() for line in narrow.getvalue().splitlines() if str(tmp_path) in line] == [str(task.run)]
        assert any("teacher 0" in line and str(task.run) in line for line in wide.getvalue().splitlines())


def test_how_far_a_row_is(tmp_path: Path) -> None:
    tasks = [task for task in tasks_of(TABLES["cifar10"], tmp_path, Changes()) if task.row == "kd"][:4]
    run = RunFolder(tasks[0].run)
    run.begin(to_dict(tasks[0].recipe), {"steps": 100}, {})
    run.log({"step": 40})
    assert progress(tasks, "seed") == "0 of 4 seeds, 1 started"
    run.write_json("result.json", {})
    assert progress(tasks, "seed") == "1 of 4 seeds"
    assert progress(tasks[:1], "seed") == "1 of 1 seed"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "reproduce needs a table of the paper, one of cifar10, cifar100, ablation"),
        (["cifar11"], "reproduce needs a table of the paper, one of cifar10, cifar100, ablation"),
        (["cifar10", "--rows", "kdd"], "--rows: there is no 'kdd'; did you mean 'kd'?"),
        (["cifar10", "--members", "x"], "--members: expected numbers of teachers such as 4,8, got 'x'"),
        (["cifar10", "--seeds", "0"], "--seeds: expected at least 1, got 0"),
        (["cifar10", "--epochs", "0"], "--epochs: expected at least 1, got 0"),
        (["cifar10", "--at-once", "0"], "--at-once: expected at least 1, got 0"),
        (["cifar10", "--minutes", "-1"], "--minutes: expected a positive number, got -1.0"),
        (["cifar10", "--folders"], "--folders: expected only together with --dry-run"),
        (["cifar10", "--seedz", "1"], "there is no flag --seedz; did you mean --seeds?"),
    ],
)
def test_mistakes_are_told(words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", *words, *(["--out", str(tmp_path)] if words else [])]) == 2
    assert told in capsys.readouterr().err


def test_data_of_later_runs_are_looked_for_first(tmp_path: Path) -> None:
    """Nobody wants to hear of it after the runs of another data set."""
    settings = (*TINY.settings, Setting(cifar10, 2, 2, ()))
    with pytest.raises(ValueError, match="cifar10"):
        reproduce(
            "tiny", tmp_path, stage=Kept(), table=Table(settings, 1), changes=Changes(root=str(tmp_path / "none"))
        )
    assert not any(tmp_path.iterdir())


def test_data_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--data.root", str(tmp_path / "nothing"), "--out", str(tmp_path), "--device", "cpu"]
    assert main(["reproduce", "cifar10", *words]) == 2
    assert "nothing" in capsys.readouterr().err


def test_a_failure_is_said_and_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Reproduced(Outcome(failures=["cifar10, kd of 4, seed 0: the loss is nan"]), None, [])
    monkeypatch.setattr("onefold.cli.run_reproduce.reproduce", lambda *_, **__: made)
    assert main(["reproduce", "cifar10", "--rows", "kd", "--members", "4", "--out", str(tmp_path)]) == 1
    assert "failed: cifar10, kd of 4, seed 0: the loss is nan" in capsys.readouterr().err
