"""An ordinary optimizer on `parameter_groups` takes the steps of the paper's algorithm 2."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onefold import batch_ensemble
from onefold.ensemble import Plain

M, LR, DECAY, MOMENTUM, TAU = 3, 0.1, 0.05, 0.9, 4.0


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """tau^2 H[p_T(tau), p_S(tau)], mean over images."""
    return -(TAU**2) * ((targets / TAU).softmax(-1) * (logits / TAU).log_softmax(-1)).sum(-1).mean()


@pytest.mark.parametrize("init", ["ones", "normal"])
def test_nesterov_steps_by_hand(init: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    student = batch_ensemble(net, M, init)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(student.parameter_groups(LR, DECAY), lr=LR, momentum=MOMENTUM, nesterov=True)

    # The same by hand: theta, and r and s themselves rather than their distance from one.
    theta = [p.detach().clone().requires_grad_() for p in net.parameters()]  # W1 b1 W2 b2
    by_hand = [(1 + p.detach()).clone().requires_grad_() for p in student.factors().values()]  # r1 s1 r2 s2
    velocity = [torch.zeros_like(p) for p in (*theta, *by_hand)]

    for _ in range(5):
        x, targets = torch.randn(6, 4, dtype=torch.float64), torch.randn(M, 6, 3, dtype=torch.float64)
        optimizer.zero_grad()
        torch.stack([loss(s, t) for s, t in zip(student(x), targets, strict=True)]).mean().backward()
        optimizer.step()

        w1, b1, w2, b2 = theta
        r1, s1, r2, s2 = by_hand
        losses = []
        for m in range(M):
            hidden = torch.tanh(F.linear(x, w1 * torch.outer(s1[m], r1[m]), b1))
            losses.append(loss(F.linear(hidden, w2 * torch.outer(s2[m], r2[m]), b2), targets[m]))
        of_theta = torch.autograd.grad(torch.stack(losses).mean(), theta, retain_graph=True)
        # row m of a factor enters the loss of member m alone: the gradient of the sum is each one's full gradient
        of_factors = torch.autograd.grad(torch.stack(losses).sum(), by_hand)
        pull = DECAY if init == "ones" else 0.0
        gradients = [g + DECAY * p.detach() for g, p in zip(of_theta, theta, strict=True)]
        gradients += [g + pull * (p.detach() - 1) for g, p in zip(of_factors, by_hand, strict=True)]
        for p, g, v in zip((*theta, *by_hand), gradients, velocity, strict=True):
            v.mul_(MOMENTUM).add_(g)
            p.data -= LR * (g + MOMENTUM * v)

    mine = [p for n, p in student.net.named_parameters() if not n.endswith("minus_one")]
    for p, q in zip(mine, theta, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-12)
    for p, q in zip(student.factors().values(), by_hand, strict=True):
        torch.testing.assert_close(1 + p, q, rtol=1e-10, atol=1e-12)


def test_groups_cover_every_trained_parameter_once() -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    net[1].requires_grad_(False)
    student = batch_ensemble(net, M)
    groups = student.parameter_groups(LR, DECAY)
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in student.parameters() if p.requires_grad)
    assert [g["lr"] for g in groups] == [LR, pytest.approx(M * LR)]
    assert [g["weight_decay"] for g in groups] == [DECAY, pytest.approx(DECAY / M)]


def test_the_first_group_is_in_the_networks_own_order() -> None:
    """So that learning rates by layer can be given to it."""
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.Sequential(nn.Linear(4, 8), block, nn.LayerNorm(8), nn.Linear(8, 3))
    net[2].requires_grad_(False)
    own = [p for p in net.parameters() if p.requires_grad]
    for student in (batch_ensemble(net, M), Plain(net)):
        params = student.parameter_groups(LR, DECAY)[0]["params"]
        assert all(torch.equal(p, q) for p, q in zip(params, own, strict=True))


def test_adaptive_groups_leave_the_rate_alone() -> None:
    """For an optimizer that takes the gradient's scale out, decoupled decay lambda pulls the factors to one."""
    student = batch_ensemble(nn.Sequential(nn.Linear(4, 3)), M)
    assert [g["lr"] for g in student.parameter_groups(LR, DECAY, adaptive=True)] == [LR, LR]
    for factor in student.factors().values():
        nn.init.constant_(factor, 0.5)
        factor.grad = torch.zeros_like(factor)
    torch.optim.AdamW(student.parameter_groups(LR, DECAY, adaptive=True)).step()
    for factor in student.factors().values():
        torch.testing.assert_close(factor, torch.full_like(factor, 0.5 * (1 - LR * DECAY)))


def test_a_plain_student_has_one_group() -> None:
    net = nn.Linear(4, 3)
    (group,) = Plain(net).parameter_groups(LR, DECAY)
    assert group["params"] == list(net.parameters())
    assert (group["lr"], group["weight_decay"]) == (LR, DECAY)
