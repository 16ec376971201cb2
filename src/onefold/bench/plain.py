"""The methods as one would write them in an afternoon: plain PyTorch, eager, TF32, one teacher after the other.

The baseline for the fast engine, in speed and in losses. The network is the user's; nothing else of the package is
used here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RankOneConv2d(nn.Module):
    """A convolution with M members: s_m o conv(r_m o x)."""

    def __init__(self, conv: nn.Conv2d, members: int) -> None:
        super().__init__()
        self.conv = conv
        self.r = nn.Parameter(torch.ones(members, conv.in_channels, device=conv.weight.device))
        self.s = nn.Parameter(torch.ones(members, conv.out_channels, device=conv.weight.device))

    def forward(self, x: Tensor) -> Tensor:
        each = x.shape[0] // self.r.shape[0]
        r = self.r.repeat_interleave(each, 0)[:, :, None, None]
        s = self.s.repeat_interleave(each, 0)[:, :, None, None]
        h: Tensor = self.conv(x * r)
        return h * s


class RankOneLinear(nn.Module):
    """The same for linear layers, on `[M * B, ..., C]`."""

    def __init__(self, linear: nn.Linear, members: int) -> None:
        super().__init__()
        self.linear = linear
        self.r = nn.Parameter(torch.ones(members, linear.in_features, device=linear.weight.device))
        self.s = nn.Parameter(torch.ones(members, linear.out_features, device=linear.weight.device))

    def forward(self, x: Tensor) -> Tensor:
        each, between = x.shape[0] // self.r.shape[0], (1,) * (x.dim() - 2)
        r = self.r.repeat_interleave(each, 0).reshape(len(x), *between, -1)
        s = self.s.repeat_interleave(each, 0).reshape(len(x), *between, -1)
        h = F.linear(x * r, self.linear.weight) * s
        return h if self.linear.bias is None else h + self.linear.bias


def batch_ensemble(net: nn.Module, members: int) -> nn.Module:
    """A copy with members in every convolution and linear layer."""
    net = copy.deepcopy(net)
    for module in list(net.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Conv2d):
                setattr(module, name, RankOneConv2d(child, members))
            elif isinstance(child, nn.Linear):
                setattr(module, name, RankOneLinear(child, members))
    return net


def optimizer_for(net: nn.Module, members: int, lr: float, decay: float) -> torch.optim.SGD:
    """Algorithm 2: factors have M times the gradient, and decay toward one instead of zero."""
    factors = [p for m in net.modules() if isinstance(m, (RankOneConv2d, RankOneLinear)) for p in (m.r, m.s)]
    known = {id(p) for p in factors}
    groups = [
        {"params": [p for p in net.parameters() if id(p) not in known], "weight_decay": decay},
        {"params": factors, "lr": lr * members, "weight_decay": 0.0},
    ]
    return torch.optim.SGD([g for g in groups if g["params"]], lr=lr, momentum=0.9, nesterov=True)


def augment(images: Tensor, pad: int = 4) -> Tensor:
    """Random crops and flips of a uint8 batch on the device, as floats in [0, 1]."""
    n, _, h, w = images.shape
    padded = F.pad(images, (pad,) * 4)
    top, left = torch.randint(0, 2 * pad + 1, (2, n), device=images.device)
    rows = top[:, None] + torch.arange(h, device=images.device)
    columns = left[:, None] + torch.arange(w, device=images.device)
    flip = torch.rand(n, device=images.device) < 0.5
    columns = torch.where(flip[:, None], columns.flip(1), columns)
    batch = torch.arange(n, device=images.device)[:, None, None]
    cropped = padded.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]]
    return cropped.permute(0, 3, 1, 2).float() / 255


def divergence(first: Tensor, second: Tensor) -> Tensor:
    """KL(sg(first) || second) summed over the batch."""
    p = first.detach().softmax(1)
    return (p * (p.log() - second.log_softmax(1))).sum()


def diversify(x: Tensor, teachers: Sequence[nn.Module], student: nn.Module, members: int) -> Tensor:
    """TDiv-SDiv: one step up the gradient of the teachers' divergence minus the student's."""
    i = int(torch.randint(members, (1,)))
    j = (i + int(torch.randint(1, members, (1,)))) % members
    x = x.detach().requires_grad_()
    value = divergence(teachers[i](x), teachers[j](x))
    student.eval()
    answers = student(x.repeat(members, 1, 1, 1)).unflatten(0, (members, -1))
    student.train()
    value = value - divergence(answers[i], answers[j])
    (gradient,) = torch.autograd.grad(value, x)
    size = gradient.flatten(1).norm(dim=1)[:, None, None, None]
    eta = x[0].numel() ** 0.5 / 255
    moved: Tensor = (x + eta * gradient / (size + 1e-12)).clamp(0, 1)
    return moved.detach()


def supervised_step(net: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def latentbe_step(
    net: nn.Module,
    teachers: Sequence[nn.Module],
    optimizer: torch.optim.Optimizer,
    decay: float,
    temperature: float,
    perturb: bool,
) -> Callable[[Tensor, Tensor], Tensor]:
    members = len(teachers)
    factors = [p for m in net.modules() if isinstance(m, (RankOneConv2d, RankOneLinear)) for p in (m.r, m.s)]

    def step(x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG001
        if perturb:
            x = diversify(x, teachers, net, members)
        with torch.no_grad():
            targets = torch.stack([teacher(x) for teacher in teachers])
        optimizer.zero_grad()
        answers = net(x.repeat(members, 1, 1, 1)).unflatten(0, (members, -1))
        log_p = (answers / temperature).log_softmax(-1)
        loss: Tensor = -(temperature**2) * ((targets / temperature).softmax(-1) * log_p).sum(-1).mean()
        loss.backward()
        with torch.no_grad():
            for p in factors:  # decay toward one, with the same coefficient as the decay of the weights
                assert p.grad is not None
                p.grad.add_(p - 1, alpha=decay / members)
        optimizer.step()
        return loss.detach()

    return step
