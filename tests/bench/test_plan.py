"""What a recipe will cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from onefold.bench.growth import growth, rounds, teachers_seconds, variants
from onefold.bench.measured import Measured, mean_seconds, measured
from onefold.bench.plan import Phase, Times, Work, evaluations, phase_of, times_of, work_of
from onefold.bench.stand_in import Examples, examples_for
from onefold.bench.stepping import stepping
from onefold.engine import build_network
from onefold.engine.cost.counting import count_forward
from onefold.engine.training import Training
from onefold.recipe import Recipe
from onefold.recipes import digits, recipe_named

CPU = torch.device("cpu")
FOUND = Measured(
    runs=1,
    start_up=7.0,
    step=0.1,
    last=0.05,
    serve=0.3,
    example=0.001,
    checkpoint=0.2,
    best=0.01,
    written=0.3,
    metrics=0.5,
    look=0.0,
    memory=10**9,
)


@pytest.fixture(scope="module")
def examples() -> Examples:
    return replace(examples_for(digits()), loading=0.0)


def small() -> Recipe:
    recipe = digits()
    return replace(recipe, network="mlp", epochs=2, optim=replace(recipe.optim, warmup_epochs=0))


def test_arithmetic_of_a_student(examples: Examples) -> None:
    source = examples.source
    net = build_network("wrn10x1", 10, source.statistics, source.image_size)
    each = count_forward(net, (1, 1, 8, 8)).flops
    work = work_of(digits(), examples, student=True)
    assert work.steps == 30 * 13
    assert work.step_flops == 22 * 32 * each
    assert work.evaluated == 200 + 200 + 1197  # one evaluation, and both splits in the end
    assert work.total_flops(30 * 400) == each * (22 * 30 * 400 + 1597)
    teachers = work_of(digits(), examples, student=False)
    assert teachers.total_flops(30 * 400) == 4 * each * (3 * 30 * 400 + 1597)
    be = replace(digits(), distill=replace(digits().distill, method="be"))
    assert work_of(be, examples, student=True).evaluated == 4 * 1597


def test_times_add_up(examples: Examples) -> None:
    recipe = replace(digits(), eval_every=10)
    work = work_of(recipe, examples, student=True)
    times = times_of(recipe, examples, work, FOUND, program=2.0)
    assert times.start_up == pytest.approx(9.0)
    assert times.training == pytest.approx(30 * (12 * 0.1 + 0.05))
    assert times.evaluation == pytest.approx(3 * (0.3 + 0.2) + 0.3 + 1.397 + 0.5)
    assert times.checkpoints == pytest.approx(30 * 0.2 + 3 * 0.01 + 0.3 + 0.1)  # the last, and the model
    assert times.total == pytest.approx(times.start_up + times.training + times.evaluation + times.checkpoints)


def test_only_the_epochs_that_are_evaluated_are_counted() -> None:
    assert evaluations(replace(digits(), epochs=30, eval_every=7)) == 5
    assert evaluations(recipe_named("cifar10")) == 9 + 20
    assert evaluations(replace(recipe_named("cifar10"), epochs=10, optim=digits().optim)) == 10


@pytest.mark.parametrize(
    ("step", "checkpoint", "written", "example"),
    [(0.01, 0.05, 0.1, 0.0), (0.004, 0.02, 0.1, 0.0), (0.002, 0.02, 0.1, 0.0005), (0.002, 0.0, 0.3, 0.0005)],
)
def test_a_slow_disk_is_waited_for(
    examples: Examples, step: float, checkpoint: float, written: float, example: float
) -> None:
    """As a writer does that begins when the one before has ended and holds two at most: here one of an epoch."""
    work, recipe = work_of(digits(), examples, student=True), replace(digits(), eval_every=1)
    found = replace(FOUND, step=step, last=0.0, checkpoint=checkpoint, best=0.0, written=written, serve=0.0)
    times = times_of(recipe, examples, work, replace(found, example=example), program=0.0)
    now, ends = 0.0, list[float]()
    for _ in range(30):
        now += 13 * step + 200 * example
        now = max(now, ends[-2] if len(ends) > 1 else 0.0) + checkpoint
        ends.append(max(now, ends[-1] if ends else 0.0) + written)
    final = (200 + 1197) * example + 0.5 + written / 3
    assert times.total - times.start_up == pytest.approx(ends[-1] + final, rel=0.05)


def test_looks_at_the_members_count(examples: Examples) -> None:
    """A run of 400 examples and 30 epochs has one, unless it is asked for more."""
    work = work_of(digits(), examples, student=True)
    without = times_of(digits(), examples, work, FOUND, program=2.0)
    once = times_of(digits(), examples, work, replace(FOUND, look=0.7), program=2.0)
    assert once.evaluation - without.evaluation == pytest.approx(0.7)
    often = replace(digits(), diversity_every=7)
    assert times_of(often, examples, work, replace(FOUND, look=0.7), program=2.0).evaluation == pytest.approx(
        without.evaluation + 4 * 0.7
    )
    batches = replace(digits(), epochs=33, optim=replace(digits().optim, batch_size=256, drop_last=True))
    work = work_of(batches, examples, student=True)  # 256 of 400 examples are learned from: every 25 epochs
    assert times_of(batches, examples, work, replace(FOUND, look=0.7), program=2.0).evaluation == pytest.approx(
        times_of(batches, examples, work, FOUND, program=2.0).evaluation + 0.7
    )


def test_teachers_one_after_the_other_and_side_by_side(examples: Examples) -> None:
    work = work_of(digits(), examples, student=False)
    one = times_of(digits(), examples, work, FOUND, program=2.0)
    assert one.training == pytest.approx(4 * 30 * (12 * 0.1 + 0.05))
    assert one.start_up == pytest.approx(2 + 4 * 7)
    side = times_of(digits(), examples, work, replace(FOUND, runs=4), program=2.0)
    assert side.training == pytest.approx(one.training / 4)
    assert side.start_up == pytest.approx(2 + 7)
    assert side.evaluation == one.evaluation


def test_epochs_of_whole_batches_and_long_ones(examples: Examples) -> None:
    recipe = digits()
    even = replace(examples, counts=examples.counts | {"train": 416})
    work = work_of(recipe, even, student=True)
    assert times_of(recipe, even, work, replace(FOUND, last=0.0), 0.0).training == pytest.approx(30 * 13 * 0.1)
    dropped = replace(recipe, optim=replace(recipe.optim, drop_last=True))
    work = work_of(dropped, examples, student=True)
    assert work.steps == 30 * 12
    assert times_of(dropped, examples, work, replace(FOUND, last=0.0), 0.0).training == pytest.approx(30 * 12 * 0.1)
    slow = times_of(dropped, examples, work, replace(FOUND, last=0.0, step=150.0), 0.0)  # half an hour an epoch
    assert slow.checkpoints == pytest.approx(30 * 4 * 0.2 + 0.01 + 0.3 + 0.1)


def test_measuring_takes_the_steps_of_a_run(
    examples: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = torch.get_rng_state()
    for student in (False, True):
        found = measured(small(), examples, CPU, student=student, seconds=0.05, say=print)
        assert found.runs == 1
        for name, value in vars(found).items():
            assert (value > 0) == (student or name != "look"), name  # teachers have no members to compare
    assert not list(tmp_path.iterdir()), "the checkpoint was only tried"
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_is_learned_while_measuring(examples: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random teachers and a real rate could end where there are no numbers."""
    from onefold.bench import measured as module

    seen: list[Training] = []

    def remembered(training: Training, device: torch.device, seconds: float) -> tuple[float, float, float]:  # noqa: ARG001
        seen.append(training)
        return 0.1, 0.1, 0.0

    monkeypatch.setattr(module, "evaluation_seconds", remembered)
    before: dict[str, Tensor] = {}

    def noted(training: Training, size: int) -> Iterator[None]:
        before.update({name: value.clone() for name, value in training.student.named_parameters()})
        return stepping(training, size)

    monkeypatch.setattr(module, "stepping", noted)
    module.measured(small(), examples, CPU, student=True, seconds=0.05, say=print)
    for name, value in seen[0].student.named_parameters():
        torch.testing.assert_close(value.detach(), before[name].detach(), rtol=1e-6, atol=1e-6)


def test_the_mean_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    from onefold.bench import measured as module

    clock = [0.0]
    monkeypatch.setattr(module, "finished", lambda _: clock[0])

    def rounds(count: int) -> None:
        clock[0] += 0.25 * count

    assert mean_seconds(rounds, CPU, 2.0) == pytest.approx(0.25)
    assert mean_seconds(rounds, CPU, 1e-6) == pytest.approx(0.25)


def a_phase(recipe: Recipe, examples: Examples, *, student: bool) -> Phase:
    work = work_of(recipe, examples, student=student)
    return Phase("x", work, 1.0, FOUND, Times(2.0 + 4 * FOUND.start_up, 100.0, 10.0, 4.0))


def test_growth_by_counting(examples: Examples) -> None:
    recipe = digits()
    teachers, student = (a_phase(recipe, examples, student=each) for each in (False, True))
    rows = {row.what: row for row in growth(recipe, examples, teachers, student)}
    here = rows["as it is"]
    assert (here.passes, here.step, here.student, here.teachers) == (22, 0.1, 144.0, 144.0)
    assert here.memory == 10**9
    assert rows["M = 8"].passes == 16 + 8 + 8 + 6
    assert rows["M = 8"].step == pytest.approx(0.1 * 38 / 22)
    assert rows["M = 8"].student == pytest.approx(44 + 100 * 38 / 22)
    assert rows["M = 8"].teachers == pytest.approx(2 + 7 * 8 + 2 * 114)
    assert rows["batch 64"].step == pytest.approx(0.2)
    assert rows["batch 64"].student == pytest.approx(144)
    assert rows["batch 16"].memory < here.memory < rows["batch 64"].memory
    assert rows["4 devices"].student == pytest.approx(30 + 4 + 110 / 4)
    assert rows["4 devices"].memory < here.memory
    assert rows["2 devices"].teachers == pytest.approx(2 + 7 * 2 + 114 / 2)
    assert rows["8 devices"].teachers == pytest.approx(2 + 7 + 114 / 8)  # two share one


def test_teachers_side_by_side_start_together(examples: Examples) -> None:
    recipe = digits()
    found = replace(FOUND, runs=4)
    phase = Phase("x", work_of(recipe, examples, student=False), 1.0, found, Times(2.0 + 7.0, 100.0, 10.0, 4.0))
    assert teachers_seconds(phase, 4) == pytest.approx(phase.times.total)
    assert teachers_seconds(phase, 8) == pytest.approx(2 + 7 * 2 + 114 * 2)
    assert teachers_seconds(phase, 1) == pytest.approx(2 + 7 + 114 / 4)


def test_settings_that_make_no_sense_are_left_out() -> None:
    recipe = digits()
    assert list(variants(recipe)) == ["M = 2", "M = 8", "batch 16", "batch 64"]
    assert list(variants(replace(recipe, members=2))) == ["M = 4", "batch 16", "batch 64"]
    parts = replace(recipe, optim=replace(recipe.optim, batch_size=4, accumulate=2))
    assert list(variants(parts)) == ["M = 2", "M = 8", "batch 8"]
    assert [rounds(4, n) for n in (1, 2, 3, 4, 8)] == [4, 2, 2, 1, 0.5]


def test_a_phase_can_be_written_down(examples: Examples) -> None:
    phase = phase_of(small(), examples, CPU, student=True, seconds=0.02, program=1.5, say=print)
    record = phase.record()
    assert record["times"]["total"] == pytest.approx(phase.times.total)
    assert phase.times.start_up > 1.5
    assert record["work"]["passes"]["equivalents"] == 22
    assert isinstance(phase.work, Work)
