"""The plain version takes the engine's steps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onefold.bench import plain
from onefold.data import Arrays
from onefold.engine.settings import Settings
from onefold.engine.training import Job, prepare
from onefold.ensemble import Teachers, batch_ensemble
from onefold.methods import METHODS, PERTURBATIONS
from onefold.models import wide_resnet
from onefold.perturb import tdiv_sdiv
from onefold.recipe import OptimRecipe

CPU = torch.device("cpu")
MEMBERS, BATCH, STEPS = 3, 8, 6


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return wide_resnet(10, 1).double()


def batch(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(BATCH, 3, 8, 8, dtype=torch.float64, generator=generator), torch.arange(BATCH) % 10


def losses(method: str, teachers: list[nn.Module]) -> list[float]:
    """The engine's."""
    x, y = batch(0)
    optim = OptimRecipe(batch_size=BATCH, warmup_epochs=0, lr=0.05, weight_decay=1e-2)
    job = Job(
        method=METHODS[method],
        perturbation=PERTURBATIONS["none"],
        net=network(9),
        teachers=Teachers(teachers) if teachers else None,
        train=Arrays(x, y),
        val=None,
        test=None,
        settings=Settings(1, optim=optim),
        device=CPU,
    )
    training = prepare(job)
    training.student.train()
    return [float(training.step(*batch(number))) for number in range(STEPS)]


def test_supervised_steps() -> None:
    net = network(9).train()
    step = plain.supervised_step(net, plain.optimizer_for(net, 1, 0.05, 1e-2))
    ours, theirs = losses("supervised", []), [float(step(*batch(number))) for number in range(STEPS)]
    torch.testing.assert_close(torch.tensor(theirs), torch.tensor(ours), rtol=1e-5, atol=0)
    assert max(theirs) - min(theirs) > 1e-3, "something was learned"


def test_latentbe_steps() -> None:
    teachers = [network(m) for m in range(MEMBERS)]
    student = plain.batch_ensemble(network(9), MEMBERS).double().train()
    optimizer = plain.optimizer_for(student, MEMBERS, 0.05, 1e-2)
    frozen = [network(m).eval() for m in range(MEMBERS)]
    step = plain.latentbe_step(student, frozen, optimizer, 1e-2, 4.0, perturb=False)
    ours, theirs = losses("latentbe", teachers), [float(step(*batch(number))) for number in range(STEPS)]
    torch.testing.assert_close(torch.tensor(theirs), torch.tensor(ours), rtol=1e-5, atol=0)


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
