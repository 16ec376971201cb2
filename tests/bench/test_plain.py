"""The plain version takes the engine's steps."""

from __future__ import annotations

import copy
import importlib
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onefold.bench import plain
from onefold.data import Arrays
from onefold.engine.settings import Settings
from onefold.engine.training import Job, prepare
from onefold.ensemble import Teachers, batch_ensemble
from onefold.fast.tf32 import tf32
from onefold.methods import METHODS, PERTURBATIONS
from onefold.models import wide_resnet
from onefold.perturb import tdiv_sdiv
from onefold.recipe import OptimRecipe

CPU = torch.device("cpu")
MEMBERS, BATCH, STEPS = 3, 8, 6
LR, DECAY = 0.05, 1e-2


def network(seed: int, depth: int = 10, width: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return wide_resnet(depth, width).double()


def batch(seed: int, count: int = BATCH, side: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, side, side, dtype=torch.float64, generator=generator), torch.arange(count) % 10


@pytest.fixture
def one_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both versions draw the members 1 and 0."""
    ours = importlib.import_module("onefold.perturb.tdiv")  # the module; the package has a function of that name

    def pair(_: int, device: torch.device, __: Any) -> tuple[Tensor, Tensor]:
        return torch.tensor([1], device=device), torch.tensor([0], device=device)

    monkeypatch.setattr(ours, "draw_pair", pair)
    drawn = itertools.cycle([1, MEMBERS - 1])  # the second is how far it is to the other
    monkeypatch.setattr(torch, "randint", lambda *_: torch.tensor([next(drawn)]))


def losses(
    method: str,
    perturbation: str,
    net: nn.Module,
    teachers: list[nn.Module],
    batches: list[tuple[Tensor, Tensor]],
    device: torch.device = CPU,
    precision: str = "float32",
    lr: float = LR,
) -> list[float]:
    """The engine's."""
    optim = OptimRecipe(batch_size=len(batches[0][1]), warmup_epochs=0, lr=lr, weight_decay=DECAY)
    job = Job(
        method=METHODS[method],
        perturbation=PERTURBATIONS[perturbation],
        net=net,
        teachers=Teachers(teachers) if teachers else None,
        train=Arrays(*batches[0]),
        val=None,
        test=None,
        settings=Settings(1, optim=optim, precision=precision),
        device=device,
    )
    training = prepare(job)
    training.student.train()
    try:
        return [float(training.step(x.to(device), y.to(device))) for x, y in batches]
    finally:
        training.close()


def plain_losses(
    method: str,
    perturbation: str,
    net: nn.Module,
    teachers: list[nn.Module],
    batches: list[tuple[Tensor, Tensor]],
    lr: float = LR,
) -> list[float]:
    kind, device = batches[0][0].dtype, next(net.parameters()).device
    if method == "supervised":
        step = plain.supervised_step(net.train(), plain.optimizer_for(net, 1, lr, DECAY))
    else:
        student = plain.batch_ensemble(net, MEMBERS).to(device, kind).train()
        optimizer = plain.optimizer_for(student, MEMBERS, lr, DECAY)
        frozen = [teacher.eval().requires_grad_(False) for teacher in teachers]
        step = plain.latentbe_step(student, frozen, optimizer, DECAY, 4.0, perturb=perturbation != "none")
    return [float(step(x.to(device), y.to(device))) for x, y in batches]


CASES = [("supervised", "none"), ("latentbe", "none"), ("latentbe", "tdiv-sdiv")]


@pytest.mark.parametrize(("method", "perturbation"), CASES)
@pytest.mark.usefixtures("one_pair")
def test_the_same_losses(method: str, perturbation: str) -> None:
    batches = [batch(number) for number in range(STEPS)]
    teachers = [network(m) for m in range(MEMBERS)] if method != "supervised" else []
    ours = losses(method, perturbation, network(9), copy.deepcopy(teachers), batches)
    theirs = plain_losses(method, perturbation, network(9), teachers, batches)
    torch.testing.assert_close(torch.tensor(theirs), torch.tensor(ours), rtol=1e-5, atol=0)
    assert max(theirs) - min(theirs) > 1e-3, "something was learned"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("method", "perturbation"), CASES)
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(("precision", "error"), [("float32", 1e-4), ("bf16", 2e-2)])
@pytest.mark.usefixtures("one_pair")
def test_the_same_losses_by_the_fast_path(
    method: str, perturbation: str, width: int, precision: str, error: float
) -> None:
    """Wide students at a rate with which losses stay large: what is left when all is learned is rounding."""
    cuda, lr = torch.device("cuda"), LR if width == 1 or method == "supervised" else LR / 10
    batches = [(x.float(), y) for x, y in (batch(number, 32, 32) for number in range(STEPS))]
    teachers = [network(m, 28, width).float().to(cuda) for m in range(MEMBERS)] if method != "supervised" else []
    with tf32(False):
        net, same = network(9, 28, width).float(), copy.deepcopy(teachers)
        ours = losses(method, perturbation, net, same, batches, cuda, precision, lr)
        net = network(9, 28, width).float().to(cuda)
        theirs = plain_losses(method, perturbation, net, teachers, batches, lr)
        net = network(9, 28, width).float().to(cuda)
        still = plain_losses(method, perturbation, net, teachers, batches, 0.0)
    torch.testing.assert_close(torch.tensor(theirs), torch.tensor(ours), rtol=error, atol=0)
    apart = max(abs(one / other - 1) for one, other in zip(still, theirs, strict=True))
    assert apart > 2 * error, "a network that learns nothing would do"


def test_linear_layers_on_tokens() -> None:
    """Each member's tokens through a weight of its own."""
    torch.manual_seed(0)
    linear = nn.Linear(4, 3)
    layer = plain.RankOneLinear(linear, 2)
    nn.init.normal_(layer.r)
    nn.init.normal_(layer.s)
    x = torch.randn(2 * 5, 7, 4)
    expected = []
    for m in range(2):
        weight = linear.weight * layer.s[m][:, None] * layer.r[m]
        expected.append(x[5 * m : 5 * m + 5] @ weight.T + linear.bias)
    torch.testing.assert_close(layer(x), torch.cat(expected))


def test_the_perturbation() -> None:
    """Of two members there are two ordered pairs; both versions draw both."""
    x, _ = batch(0)
    frozen = [network(m).eval().requires_grad_(False) for m in range(2)]
    ours = batch_ensemble(network(9), 2, "ones")
    theirs = plain.batch_ensemble(network(9), 2).double()
    torch.manual_seed(5)
    with torch.no_grad():  # members that differ, the same way in both
        of_plain = dict(theirs.named_parameters())
        for name, parameter in ours.named_parameters():
            where, _, factor = name.removeprefix("net.").rpartition(".weight_")
            if factor in ("r_minus_one", "s_minus_one"):
                parameter.copy_(0.3 * torch.randn_like(parameter))
                of_plain[f"{where}.{factor[0]}"].copy_(1 + parameter)
    ours.train()
    theirs.train()
    wanted = {tuple(tdiv_sdiv(x, Teachers(frozen), ours).flatten().tolist()[:50]) for _ in range(12)}
    found = [plain.diversify(x, frozen, theirs, 2).flatten()[:50] for _ in range(12)]
    assert len(wanted) == 2
    assert len({tuple(each.tolist()) for each in found}) == 2
    for each in found:
        assert min(float((each - torch.tensor(other, dtype=each.dtype)).abs().max()) for other in wanted) < 1e-9
