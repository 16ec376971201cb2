"""Each perturbation against its formula written out, and what it must leave alone."""

from __future__ import annotations

import copy
from collections import Counter
from functools import partial
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from onefold import Teachers, batch_ensemble, subnetwork
from onefold.ensemble import BatchEnsemble, Plain
from onefold.perturb import InputSpace, confods, gaussian, none, ods, tdiv, tdiv_sdiv
from onefold.perturb.tdiv import draw_pair

M, K = 3, 5
DEVICE = torch.device("cpu")


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(6 * 16, K)
    ).double()


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(3)
    return torch.rand(4, 3, 6, 6, dtype=torch.float64) * 0.9 + 0.05


@pytest.fixture
def teachers(x: Tensor) -> Teachers:
    nets = [network() for _ in range(M)]
    for net in nets:
        net(torch.rand(64, *x.shape[1:], dtype=x.dtype))
    return Teachers(nets)


@pytest.fixture
def student(x: Tensor) -> BatchEnsemble:
    student = batch_ensemble(network(), M, "normal")
    student(torch.rand(64, *x.shape[1:], dtype=x.dtype))
    return student.train()


def step(x: Tensor, gradient: Tensor, size: Tensor | float = 1.0) -> Tensor:
    """One image at a time, as the paper writes it."""
    moved = []
    for m, (image, g) in enumerate(zip(x, gradient, strict=True)):
        length = float(size[m]) if isinstance(size, Tensor) else size
        moved.append((image + length * (image.numel() ** 0.5 / 255) * g / g.norm()).clamp(0, 1))
    return torch.stack(moved)


def gradient_of_divergence(first: nn.Module, second: nn.Module, x: Tensor) -> Tensor:
    """Image by image: the gradient of KL(sg(p_i) || p_j)."""
    gradients = []
    for image in x:
        z = image[None].clone().requires_grad_()
        p, q = first(z).log_softmax(-1).detach(), second(z).log_softmax(-1)
        gradients.append(torch.autograd.grad((p.exp() * (p - q)).sum(), z)[0][0])
    return torch.stack(gradients)


def test_none_and_gaussian(x: Tensor, teachers: Teachers, student: BatchEnsemble) -> None:
    assert none(x, teachers, student) is x
    torch.manual_seed(0)
    moved = gaussian(x, teachers, student)
    torch.manual_seed(0)
    torch.testing.assert_close(moved, (x + torch.randn_like(x) / 255).clamp(0, 1))


@pytest.mark.parametrize("perturb", [ods, confods])
def test_ods(perturb: Any, x: Tensor, teachers: Teachers, student: BatchEnsemble) -> None:
    torch.manual_seed(0)
    moved = perturb(x, teachers, student, temperature=4.0)
    torch.manual_seed(0)
    t = int(torch.randint(M, (1,)))
    w = torch.rand(4, K, dtype=x.dtype) * 2 - 1
    z = x.clone().requires_grad_()
    p = (teachers.networks[t](z) / 4.0).softmax(-1)
    gradient = torch.autograd.grad((w * p).sum(), z)[0]
    size = p.amax(-1).detach() if perturb is confods else 1.0
    torch.testing.assert_close(moved, step(x, gradient, size), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("perturb", [tdiv, tdiv_sdiv])
def test_tdiv(perturb: Any, x: Tensor, teachers: Teachers, student: BatchEnsemble) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        moved = perturb(x, teachers, student)
        torch.manual_seed(seed)
        i, j = (int(k) for k in draw_pair(M, DEVICE))
        gradient = gradient_of_divergence(teachers.networks[i], teachers.networks[j], x)
        if perturb is tdiv_sdiv:
            members = [subnetwork(student, m).eval() for m in (i, j)]
            gradient = gradient - gradient_of_divergence(members[0], members[1], x)
        torch.testing.assert_close(moved, step(x, gradient), rtol=1e-8, atol=1e-11)


class Standardizing(nn.Module):
    """A network for images in [0, 1] around one for normalised images."""

    def __init__(self, net: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.net, self.mean, self.std = net, mean, std

    def forward(self, x: Tensor) -> Tensor:
        answers: Tensor = self.net((x - self.mean) / self.std)
        return answers


@pytest.mark.parametrize("perturb", [none, gaussian, ods, confods, tdiv, tdiv_sdiv])
def test_normalised_images_are_perturbed_as_pixels_are(
    perturb: Any, teachers: Teachers, student: BatchEnsemble
) -> None:
    numbers = (0.485, 0.456, 0.406), (0.229, 0.1, 0.5)
    mean, std = (torch.tensor(values, dtype=torch.float64).view(3, 1, 1) for values in numbers)
    pixels = (torch.rand(4, 3, 6, 6, dtype=torch.float64) * 1.2 - 0.1).clamp(0, 1)  # some at the ends already
    inside = Teachers([Standardizing(net, mean, std) for net in teachers.networks])
    standardizing = batch_ensemble(Standardizing(network(), mean, std), M, "normal")
    weights = {f"net.net.{name.removeprefix('net.')}": value for name, value in student.state_dict().items()}
    standardizing.load_state_dict(weights)
    torch.manual_seed(0)
    expected = (perturb(pixels, inside, standardizing) - mean) / std
    torch.manual_seed(0)
    x = (pixels - mean) / std
    moved = perturb(x, teachers, student, space=InputSpace.standardized(*numbers))
    torch.testing.assert_close(moved, expected, rtol=0, atol=1e-11)
    if perturb is not none:
        assert float((moved - x).abs().max()) > 1e-3


@pytest.mark.parametrize("perturb", [gaussian, ods, confods, tdiv, tdiv_sdiv])
def test_inputs_that_would_be_clipped_are_refused(
    perturb: Any, x: Tensor, teachers: Teachers, student: BatchEnsemble
) -> None:
    for odd in ((x - 0.5) / 0.25, 255 * x, x - x.min() - 1e-9):
        with pytest.raises(
            ValueError, match=r"^space: expected inputs from 0\.0 to 1\.0, got .*standardized\(mean, std\)"
        ):
            perturb(odd, teachers, student)
        perturb(odd, teachers, student, space=InputSpace.of(odd))
    # Where looking would wait for a device, or break a graph, nothing is looked at.
    traced = torch.compile(lambda z: perturb(z, teachers, student), backend="eager", fullgraph=True)
    assert bool(((traced((x - 0.5) / 0.25) >= 0) & (traced((x - 0.5) / 0.25) <= 1)).all())


def test_pairs_are_uniform_over_ordered_pairs() -> None:
    torch.manual_seed(0)
    drawn = Counter(tuple(int(k) for k in draw_pair(4, DEVICE)) for _ in range(6000))
    assert set(drawn) == {(i, j) for i in range(4) for j in range(4) if i != j}
    assert all(abs(count - 500) < 5 * 22 for count in drawn.values())  # five deviations of a binomial


@pytest.mark.parametrize("perturb", [gaussian, ods, confods, tdiv, tdiv_sdiv])
def test_nothing_else_changes(perturb: Any, x: Tensor, teachers: Teachers, student: BatchEnsemble) -> None:
    student(x).sum().backward()
    before = copy.deepcopy(student.state_dict())
    gradients = [p.grad.clone() for p in student.parameters() if p.grad is not None]
    image = x.clone()
    modes = [m.training for m in student.modules()]
    moved = perturb(x, teachers, student)
    assert not moved.requires_grad
    assert torch.equal(x, image)
    assert [m.training for m in student.modules()] == modes
    assert all(torch.equal(v, before[k]) for k, v in student.state_dict().items())
    after = [p.grad for p in student.parameters() if p.grad is not None]
    assert all(torch.equal(a, b) for a, b in zip(after, gradients, strict=True))


def test_only_the_drawn_members_are_computed(x: Tensor, teachers: Teachers, student: BatchEnsemble) -> None:
    ran: list[int] = []
    for m, net in enumerate(teachers.networks):
        net.register_forward_hook(lambda *_, m=m: ran.append(m))
    rows: list[int] = []
    student.at_rest.net.register_forward_hook(lambda _, args, __: rows.append(args[0].shape[0]))
    torch.manual_seed(0)
    tdiv_sdiv(x, teachers, student)
    assert len(ran) == len(set(ran)) == 2
    assert rows == [4, 4]  # one member at a time, each on the batch


def test_confident_teachers_still_give_a_direction(x: Tensor, student: BatchEnsemble) -> None:
    """Gradients of about 1e-30: their squares vanish in float32, their direction does not."""
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(108, K)) for _ in range(2)]
    for net in nets:
        net[1].bias.data = torch.tensor([70.0, 0, 0, 0, 0])
    moved = tdiv(x.float(), Teachers(nets), student)
    norm = (moved - x.float()).flatten(1).norm(dim=1)
    torch.testing.assert_close(norm, torch.full((4,), 108**0.5 / 255), rtol=1e-3, atol=0)


def test_agreeing_teachers_leave_the_input(x: Tensor, student: BatchEnsemble) -> None:
    constant = nn.Sequential(nn.Flatten(), nn.Linear(108, K)).double()
    nn.init.zeros_(constant[1].weight)  # type: ignore[arg-type]
    assert torch.equal(tdiv(x, Teachers([constant, constant]), student), x)


def test_errors(x: Tensor, teachers: Teachers, student: BatchEnsemble) -> None:
    plain = Plain(network())
    with pytest.raises(ValueError, match=r"student: tdiv-sdiv needs a student with members.*plain network"):
        tdiv_sdiv(x, teachers, plain)
    with pytest.raises(ValueError, match="student: expected 3 members, one for each teacher, got 2"):
        tdiv_sdiv(x, teachers, batch_ensemble(network(), 2))
    for perturb in (tdiv, tdiv_sdiv):
        with pytest.raises(ValueError, match="at least 2 members, got 1"):
            perturb(x, Teachers([network()]), student)
    for each in (gaussian, partial(ods, temperature=2.0), confods, tdiv, tdiv_sdiv):
        with pytest.raises(ValueError, match=r"needs floating-point inputs, got torch\.int64"):
            each((x * 255).long(), teachers, student)


@pytest.mark.parametrize("perturb", [ods, confods, tdiv, tdiv_sdiv])
def test_networks_that_are_no_ensemble_are_told_what_to_make(
    perturb: Any, x: Tensor, teachers: Teachers, student: BatchEnsemble
) -> None:
    nets, alone = list(teachers.networks), cast(Any, teachers.networks[0])
    for given, kind in ((nets, "list"), (nets[0], "Sequential"), (None, "NoneType")):
        with pytest.raises(
            ValueError, match=rf"^teachers: .* called as one, got {kind}; give onefold\.Teachers\(networks\)$"
        ):
            perturb(x, given, student)
    with pytest.raises(ValueError, match=r"^x: expected a tensor of inputs, got ndarray$"):
        perturb(x.numpy(), teachers, student)
    with pytest.raises(ValueError, match=r"^space: expected an InputSpace, got str; give onefold\.InputSpace\."):
        perturb(x, teachers, student, space="standardized")
    if perturb is tdiv_sdiv:
        with pytest.raises(
            ValueError, match=r"^student: .* got Sequential; .* onefold\.batch_ensemble\(net, members\)$"
        ):
            perturb(x, teachers, alone)
