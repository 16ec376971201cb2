"""Channels lie innermost in memory where a step takes that, and nobody's numbers depend on it."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import onefold
from onefold import Teachers, batch_ensemble
from onefold.data import Arrays, CropFlip
from onefold.engine import Job, Settings
from onefold.engine.accelerate import lay_out_unless_seen
from onefold.engine.distributed.spread import SpreadTeachers
from onefold.engine.layout import INNERMOST, OUTERMOST, differentiate, lay_out, layout_for, restore, strides_of
from onefold.engine.training import Training, prepare
from onefold.ensemble import Plain
from onefold.methods import METHODS, PERTURBATIONS, AnyStudent
from onefold.recipe import OptimRecipe
from onefold.run import RunFolder

SIZE, CLASSES = 8, 3


class Flattens(nn.Module):
    """Convolutions and a linear layer, with all that is different about the networks below in one place."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 5, 3)
        self.head = nn.Linear(5 * 16, classes)

    def flat(self, h: Tensor) -> Tensor:
        return h.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.flat(F.relu(self.other(F.relu(self.one(x)))))))


class Views(Flattens):
    def flat(self, h: Tensor) -> Tensor:
        return h.view(len(h), -1)


class ViewsInTraining(Flattens):
    def flat(self, h: Tensor) -> Tensor:
        return h.view(len(h), -1) if self.training else h.flatten(1)


class ReadsMemory(Flattens):
    """Right for channels that are outermost, and wrong without an error for others."""

    def flat(self, h: Tensor) -> Tensor:
        return h.as_strided((len(h), h[0].numel()), (h[0].numel(), 1))


class BeginsWithZeros(ReadsMemory):
    """As many heads do, which hides what lies before them."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)


class Draws(Flattens):
    def flat(self, h: Tensor) -> Tensor:
        return F.dropout(h.flatten(1), 0.5, training=True)


class DrawsOnMaps(Flattens):
    """In the order of the memory: other numbers, and no worse ones."""

    def flat(self, h: Tensor) -> Tensor:
        return F.dropout(h, 0.5, training=True).flatten(1)


class ReadsMemoryInTraining(ReadsMemory):
    def flat(self, h: Tensor) -> Tensor:
        return super().flat(h) if self.training else h.flatten(1)


class DrawsOnMapsInTraining(Flattens):
    def flat(self, h: Tensor) -> Tensor:
        return F.dropout(h, 0.5, training=self.training).flatten(1)


class DrawsAndReadsMemory(ReadsMemoryInTraining):
    """What is drawn is no excuse."""

    def flat(self, h: Tensor) -> Tensor:
        return F.dropout(super().flat(F.dropout(h, 0.2, training=self.training)), 0.5, training=self.training)


class ReadsGradients(Flattens):
    """As some kernels do in a backward pass: right for a gradient whose channels are outermost."""

    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, h: Tensor) -> Tensor:  # noqa: ARG004
            return h.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
            (g,) = gradients
            return g.as_strided(g.shape, torch.empty(g.shape).stride()).clone()

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.flat(self.other(self.Reads.apply(F.relu(self.one(x)))))))


class NoNoise(Flattens):
    """Noise in place of the zeros is not a number."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / (1 + self.mask.sqrt())


class NoNoiseAndViews(NoNoise, ViewsInTraining):
    pass


class Unfolds(Flattens):
    """Takes rows of numbers, and makes images of them."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.reshape(len(x), 3, SIZE, SIZE))


class UnfoldsAndViews(Unfolds, Views):
    pass


class Pixels(nn.Module):
    """No convolution: nothing to gain."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3 * SIZE * SIZE, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(x.view(len(x), -1)))


def of(make: Callable[[], nn.Module], count: int = 2) -> Teachers:
    return Teachers([make() for _ in range(count)])


X = torch.rand(4, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


def one_step(student: AnyStudent, layout: torch.memory_format) -> None:
    differentiate(X, student, layout)


@pytest.mark.parametrize(
    ("net", "teachers", "layout", "said"),
    [
        (Flattens, None, INNERMOST, ""),
        (Flattens, Flattens, INNERMOST, ""),
        (Draws, Draws, INNERMOST, ""),
        (DrawsOnMaps, DrawsOnMaps, INNERMOST, ""),
        (Views, None, OUTERMOST, "the student cannot use the channels-last memory format"),
        (ViewsInTraining, Flattens, OUTERMOST, "the student cannot use the channels-last memory format"),
        (ReadsMemoryInTraining, None, OUTERMOST, "its gradients differ"),
        (ReadsGradients, None, OUTERMOST, "its gradients differ"),
        (DrawsAndReadsMemory, None, OUTERMOST, "its gradients differ"),
        (DrawsOnMapsInTraining, None, INNERMOST, ""),
        (Flattens, ReadsGradients, OUTERMOST, "the teachers"),
        (NoNoise, None, INNERMOST, ""),
        (NoNoiseAndViews, None, OUTERMOST, "the student"),
        (ReadsMemory, None, OUTERMOST, "its outputs differ"),
        (BeginsWithZeros, None, OUTERMOST, "its outputs differ"),
        (Flattens, Views, OUTERMOST, "the teachers cannot use the channels-last memory format"),
        (ViewsInTraining, ViewsInTraining, OUTERMOST, "the student"),
        (Flattens, ViewsInTraining, INNERMOST, ""),  # teachers are never in training
        (Pixels, Pixels, OUTERMOST, ""),
        (Flattens, Pixels, OUTERMOST, "the teachers"),
    ],
)
@pytest.mark.parametrize("members", [1, 2])
def test_who_takes_channels_innermost(
    net: Callable[[], nn.Module], teachers: Callable[[], nn.Module] | None, layout: Any, said: str, members: int
) -> None:
    told: list[str] = []
    student = Plain(net()) if members == 1 else batch_ensemble(net(), members, example=X)
    asked = None if teachers is None else of(teachers)
    before = {name: value.clone() for name, value in student.state_dict().items()}
    random = torch.get_rng_state()
    assert layout_for(student, asked, X, one_step, told.append) == layout
    assert "".join(told).count("\n") == 0
    assert said in "".join(told)
    assert bool(told) == bool(said)
    assert torch.equal(torch.get_rng_state(), random)
    assert student.training
    for name, value in student.state_dict().items():
        assert torch.equal(value, before[name]), name
        assert value.is_contiguous(), name


def test_all_teachers_are_asked_where_they_differ() -> None:
    told: list[str] = []
    mixed = Teachers([Flattens(), Views()])
    assert layout_for(Plain(Flattens()), mixed, X, one_step, told.append) == OUTERMOST
    assert "the teachers" in told[0]


def test_what_is_no_image_is_left_alone() -> None:
    told: list[str] = []
    student = Plain(nn.Linear(5, 2))
    assert layout_for(student, None, torch.rand(4, 5), one_step, told.append) == OUTERMOST
    assert not told


def test_images_that_a_network_makes_of_rows() -> None:
    told: list[str] = []
    rows = X.flatten(1)

    step = partial(differentiate, rows)
    assert layout_for(Plain(Unfolds()), None, rows, step, told.append) == INNERMOST
    assert not told
    assert layout_for(Plain(UnfoldsAndViews()), None, rows, step, told.append) == OUTERMOST
    assert "the student" in told[0]


def test_who_has_a_part_in_a_step_may_refuse() -> None:
    """An objective, a perturbation or an optimizer of one's own that looks at a gradient's memory."""
    told: list[str] = []

    def step(student: AnyStudent, layout: torch.memory_format) -> None:
        one_step(student, layout)
        assert student.training
        for p in student.parameters():
            assert p.grad is not None
            p.grad.view(-1)

    student = Plain(Flattens())
    assert layout_for(student, None, X, step, told.append) == OUTERMOST
    assert "a step cannot use the channels-last memory format" in told[0]
    assert all(p.grad is None for p in student.parameters())


def test_a_process_without_teachers_goes_with_the_others() -> None:
    class Two:
        """A world in which the other process has teachers that refuse."""

        size, rank, part = 2, 0, None

        def collected(self, value: Any) -> list[Any]:
            return [value, (True, "the teachers cannot") if isinstance(value, tuple) else value]

    told: list[str] = []
    world: Any = Two()
    spread = SpreadTeachers([Flattens()], 2, world)
    assert layout_for(Plain(Flattens()), spread, X, one_step, told.append, world) == OUTERMOST
    assert told == ["the teachers cannot"]


def test_what_fails_either_way_is_not_blamed_on_the_layout() -> None:
    """Such as an optimizer that wants a closure: the training itself will say so."""
    told: list[str] = []

    def step(student: AnyStudent, layout: torch.memory_format) -> None:  # noqa: ARG001
        raise TypeError("step() missing 1 required positional argument")

    assert layout_for(Plain(Flattens()), None, X, step, told.append) == OUTERMOST
    assert not told


class LooksAtItsGradient(Flattens):
    """A teacher that a perturbation cannot follow to its input with channels innermost."""

    class Looks(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, h: Tensor) -> Tensor:  # noqa: ARG004
            return h.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
            (g,) = gradients
            return g.view(len(g), -1).view(g.shape)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.flat(self.other(self.Looks.apply(self.one(x))))))


def test_a_teachers_gradient_is_asked_for() -> None:
    told: list[str] = []
    assert layout_for(Plain(Flattens()), of(LooksAtItsGradient), X, one_step, told.append) == OUTERMOST
    assert "the teachers cannot use the channels-last memory format" in told[0]
    assert layout_for(Plain(Flattens()), of(LooksAtItsGradient), X, one_step, told.append, followed=False) == INNERMOST
    assert len(told) == 1


class Frozen(nn.Module):
    """A backbone that all copies of a network share, to save memory."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)
        self.zero = nn.Parameter(torch.zeros(6))
        self.requires_grad_(False)

    def __deepcopy__(self, memo: Any) -> Frozen:
        return self

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(F.relu(self.norm(self.one(x))) + self.zero.view(1, -1, 1, 1))


class OnFrozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = Frozen(), nn.Linear(6 * 36, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.body(x).flatten(1)))


@pytest.mark.parametrize("method", ["supervised", "kd"])
def test_weights_that_copies_share_stay_as_they_are(method: str) -> None:
    net, data = OnFrozen(), (torch.rand(8, 3, SIZE, SIZE), torch.arange(8) % CLASSES)
    before = {name: (value, value.clone(), value.stride()) for name, value in net.named_parameters()}
    teachers = None if method == "supervised" else of(Flattens)
    short: dict[str, Any] = {"epochs": 1, "batch_size": 8, "device": "cpu", "progress": False}
    result = onefold.distill(teachers, net, data, method=method, perturbation="none", **short)
    assert dict(net.named_parameters()).keys() == before.keys()
    for name, value in net.named_parameters():
        same, content, strides = before[name]
        assert value is same, name
        assert torch.equal(value, content), name
        assert value.stride() == strides, name
    assert result.model(X).shape == (len(X), CLASSES)


@pytest.mark.parametrize("layer", [nn.InstanceNorm2d(6), nn.LocalResponseNorm(2)])
def test_layers_that_are_slower_so_on_a_cpu(layer: nn.Module) -> None:
    class Net(Flattens):
        def __init__(self) -> None:
            super().__init__()
            self.norm = layer

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.head(self.flat(self.other(self.norm(self.one(x))))))

    told: list[str] = []
    assert layout_for(Plain(Net()), None, X, one_step, told.append) == OUTERMOST
    assert not told


def test_the_copy_that_took_a_step_leaves_no_memory_behind() -> None:
    """Nor does its twin, to which Python alone would come late."""
    gc.collect()
    gc.disable()
    try:
        taken: list[AnyStudent] = []

        def step(student: AnyStudent, layout: torch.memory_format) -> None:
            one_step(student, layout)
            taken.append(student)

        layout_for(batch_ensemble(Flattens(), 2, example=X), None, X, step, print)
    finally:
        gc.enable()
    (student,) = taken
    for one in (student, student.at_rest):
        assert all(p.numel() == 0 and p.grad is None for p in one.parameters())


@pytest.mark.parametrize(("batch_size", "accumulate", "seen"), [(1, 1, 1), (3, 1, 3), (8, 4, 2), (100, 1, 8)])
def test_a_step_is_tried_with_no_more_examples_than_a_step_has(batch_size: int, accumulate: int, seen: int) -> None:
    sizes: list[int] = []

    class Counts(Flattens):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                sizes.append(len(x))
            return super().forward(x)

    draws = torch.Generator().manual_seed(0)
    data = Arrays(torch.rand(24, 3, SIZE, SIZE, generator=draws), torch.arange(24) % CLASSES)
    optim = OptimRecipe(batch_size=batch_size, accumulate=accumulate, warmup_epochs=0)
    given = job_of(Counts, data)
    prepare(dataclasses.replace(given, settings=dataclasses.replace(given.settings, optim=optim)))
    assert max(sizes) == sizes[-1] == seen


@pytest.mark.parametrize("innermost_given", [False, True])
@pytest.mark.parametrize("fast", [False, True])
def test_a_network_comes_back_as_it_was_given(innermost_given: bool, fast: bool) -> None:
    draws = torch.Generator().manual_seed(0)
    train = torch.rand(24, 3, SIZE, SIZE, generator=draws), torch.randint(CLASSES, (24,), generator=draws)
    net = Flattens()
    if innermost_given:
        net.to(memory_format=torch.channels_last)
    result = onefold.distill(None, net, method="supervised", train=train, epochs=1, batch_size=8, fast=fast)
    for name, value in result.model.state_dict().items():
        assert value.stride() == net.state_dict()[name].stride(), name


class OneOfManyGiven(Views):
    """One parameter is a permuted tensor; the convolutions need their weights as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.zeros(1, SIZE, SIZE, 3).permute(0, 3, 1, 2))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + self.position)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("method", ["supervised", "latentbe", "be"])
def test_each_parameter_comes_back_as_it_was_given(fast: bool, method: str) -> None:
    net, data = OneOfManyGiven(), (torch.rand(8, 3, SIZE, SIZE), torch.arange(8) % CLASSES)
    assert not net.position.is_contiguous()
    teachers = None if method == "supervised" else of(Flattens)
    short: dict[str, Any] = {"epochs": 1, "batch_size": 8, "device": "cpu", "progress": False}
    result = onefold.distill(teachers, net, data, method=method, perturbation="none", fast=fast, **short)
    found = dict(result.model.named_parameters())
    for name, value in net.named_parameters():
        assert found["net." * (method == "be") + name].stride() == value.stride(), name
    result.model(X)


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.head = nn.LazyConv2d(6, 3), nn.LazyLinear(CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(F.relu(self.one(x)).flatten(1)))


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("method", ["supervised", "kd"])
def test_lazy_layers_of_a_student(fast: bool, method: str, tmp_path: Path) -> None:
    data = torch.rand(8, 3, SIZE, SIZE), torch.arange(8) % CLASSES
    teachers = None if method == "supervised" else of(Flattens)
    short: dict[str, Any] = {"epochs": 1, "batch_size": 8, "device": "cpu", "progress": False}
    assert strides_of(Lazy()) == {}  # nothing has a shape yet
    short |= {"method": method, "perturbation": "none", "fast": fast, "out": tmp_path}
    result = onefold.distill(teachers, Lazy(), data, **short)
    assert result.model.get_parameter("one.weight").is_contiguous()
    assert RunFolder(tmp_path).about["parameters"] == sum(p.numel() for p in result.model.parameters())
    assert result.model(X).shape == (len(X), CLASSES)


def test_in_the_networks_own_precision() -> None:
    student = Plain(Flattens().bfloat16())
    x = X.bfloat16()
    assert layout_for(student, None, x, partial(differentiate, x), print) == INNERMOST


def job_of(
    make: Callable[[], nn.Module],
    train: Arrays,
    teachers: Teachers | None = None,
    *,
    fast: bool = True,
    **others: Any,
) -> Job:
    optim = OptimRecipe(batch_size=8, warmup_epochs=0)
    return Job(
        method=METHODS["supervised" if teachers is None else "latentbe"],
        perturbation=PERTURBATIONS["none" if teachers is None else "tdiv-sdiv"],
        net=make(),
        teachers=teachers,
        train=train,
        val=None,
        test=None,
        settings=Settings(epochs=1, fast=fast, optim=optim),
        device=torch.device("cpu"),
        **others,
    )


def losses(training: Training) -> Tensor:
    training.student.train()
    found: list[Tensor] = []
    for epoch in range(2):
        for x, labels in training.batches(epoch, 0):
            training.schedule.before(len(found))
            found.append(training.step(x, labels).detach())
    return torch.stack(found)


@pytest.mark.parametrize(
    ("method", "perturbation"), [("supervised", "none"), ("kd", "tdiv"), ("latentbe", "tdiv-sdiv"), ("be", "confods")]
)
def test_the_same_losses_in_both_layouts(method: str, perturbation: str, make_job: Any) -> None:
    found = []
    for fast in (True, False):
        torch.manual_seed(0)
        training = prepare(make_job(method, perturbation, fast=fast))
        torch.manual_seed(1)
        weight = training.student.get_parameter("net.again.weight")
        assert weight.is_contiguous() is not fast
        found.append(losses(training))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)


def test_a_network_that_views_trains_on_crops() -> None:
    """They come out with channels innermost by themselves, on a CPU and on a GPU."""
    told: list[str] = []
    x = torch.randint(256, (24, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = Arrays(x, torch.arange(24) % CLASSES)
    training = prepare(job_of(Views, data, of(Views), augment=CropFlip(2), say=told.append))
    assert any("channels-last memory format" in text for text in told)
    assert bool(losses(training).isfinite().all())


def test_what_comes_back_is_written_by_safetensors() -> None:
    draws = torch.Generator().manual_seed(0)
    train = torch.rand(24, 3, SIZE, SIZE, generator=draws), torch.randint(CLASSES, (24,), generator=draws)
    result = onefold.distill(None, Flattens(), method="supervised", train=train, val=train, epochs=1, batch_size=8)
    assert all(value.is_contiguous() for value in result.model.state_dict().values())
    safetensors.torch.save(dict(result.model.state_dict()))


def test_weights_go_there_and_back() -> None:
    net = Flattens()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    lay_out(net)
    assert net.one.weight.is_contiguous(memory_format=torch.channels_last)
    assert not net.one.weight.is_contiguous()
    restore(net, {})
    for name, value in net.state_dict().items():
        assert value.is_contiguous()
        assert torch.equal(value, before[name])


class LosesLayout(Views):
    """Its images are outermost once more when they come to the convolutions, whose weights decide then."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.contiguous())


@pytest.mark.parametrize(("make", "laid_out"), [(Flattens, True), (Views, False), (LosesLayout, False)])
def test_teachers_weights_lie_as_their_networks_take_them(make: Callable[[], nn.Module], laid_out: bool) -> None:
    teachers = of(make)
    with torch.no_grad():
        expected = teachers(X)
    lay_out_unless_seen(teachers, X)
    assert teachers.networks[0].get_parameter("one.weight").is_contiguous() is not laid_out
    with torch.no_grad():
        torch.testing.assert_close(teachers(X), expected)


def test_teachers_that_keep_their_layout_keep_each_parameters() -> None:
    teachers = of(OneOfManyGiven)
    before = strides_of(teachers)
    lay_out_unless_seen(teachers, X)
    assert strides_of(teachers) == before
    assert teachers.networks[0].get_parameter("one.weight").is_contiguous()


@pytest.mark.parametrize("fast", [True, False])
def test_crops_are_made_as_the_networks_take_them(fast: bool) -> None:
    draws = torch.Generator().manual_seed(0)
    x, y = torch.rand(24, 3, SIZE, SIZE, generator=draws), torch.randint(CLASSES, (24,), generator=draws)
    training = prepare(job_of(Flattens, Arrays((255 * x).to(torch.uint8), y), augment=CropFlip(2), fast=fast))
    for batch, _ in training.batches(0, 0):
        assert batch.is_contiguous(memory_format=torch.channels_last) is fast
        assert batch.is_contiguous() is not fast
