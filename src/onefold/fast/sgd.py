"""SGD with momentum in one kernel for all parameters of a group, which takes gradients as other kernels wrote them.

torch's fused update takes 48 tensors at a time, with fewer programs than a large GPU has processors, and wants
gradients in the parameters' precision: two or three kernels one after the other at the end of every step, and as many
that round up before them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD

from onefold.fast import passes
from onefold.fast.ahead import only_asked
from onefold.fast.layout import laid_out_as

IN_USE = False  # by trainings that are captured; not before it has run to its end on a GPU (dev/LOG.md)
NUMBERS = 2048  # that a program updates
ROWS = 7  # of a table of addresses
PRECISIONS = (torch.float32, torch.bfloat16)  # of gradients

Triple = tuple[Tensor, Tensor, Tensor]  # a parameter, its momentum, its gradient


class OneKernelSGD(SGD):
    """torch's SGD with momentum, rates in tensors, and its state dict; another way to compute the same.

    `rounded` has the gradients that are not the parameters' own, by parameter: convolutions leave them in bf16. They
    are gone after a step.
    """

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, momentum: float, nesterov: bool) -> None:
        super().__init__(groups, lr=lr, momentum=momentum, nesterov=nesterov, fused=True)
        self.rounded: dict[Tensor, Tensor] = {}
        self.room: list[Tensor] = []
        self.unwritten: list[tuple[Tensor, Tensor]] = []

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        self.rounded.clear()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for k, group in enumerate(self.param_groups):
            triples = [self.triple(p) for p in group["params"] if p.grad is not None or p in self.rounded]
            settings = {name: group[name] for name in ("momentum", "nesterov")} | {"decay": group["weight_decay"]}
            taken = [triple for triple in triples if suits(*triple)]
            if taken:
                self.launch(k, taken, group["lr"], **settings)
            for triple in triples:
                if only_asked() or not suits(*triple):
                    update(*triple, group["lr"], **settings)
        self.rounded.clear()

    def triple(self, p: Tensor) -> Triple:
        state = self.state[p]
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        g = self.rounded.get(p, p.grad)
        assert g is not None
        return p, state["momentum_buffer"], laid_out_as(p, g)

    def launch(
        self, k: int, triples: list[Triple], rate: Tensor, *, decay: float, momentum: float, nesterov: bool
    ) -> None:
        from onefold.fast.kernels.grid import power_of_two  # a machine without a GPU may not have Triton
        from onefold.fast.kernels.update import sgd_kernel

        rows, programs = [], 0
        for p, m, g in triples:
            places, rounded = (p.data_ptr(), m.data_ptr(), g.data_ptr()), g.dtype == torch.bfloat16
            by_four = p.numel() % 4 == 0 and all(place % 16 == 0 for place in places)
            rows.append((*places, p.numel(), rounded, by_four, programs))
            programs += -(-p.numel() // NUMBERS)
        table, count = self.table(k, torch.tensor(rows, dtype=torch.int64).T.contiguous(), rate.device), len(rows)
        sizes = {"TENSORS": power_of_two(count), "NUMBERS": NUMBERS, "num_warps": 4}
        sgd_kernel[(programs,)](table, rate, count, decay, momentum, NESTEROV=nesterov, **sizes)

    def table(self, k: int, rows: Tensor, device: torch.device) -> Tensor:
        """The rows of group k on the device; of a step that is captured, which must not copy from the host, only the
        place where they will be."""
        if not capturing(device):
            return rows.to(device)
        table = self.room[k][: rows.numel()].view_as(rows)
        self.unwritten.append((table, rows))
        return table

    def to_be_captured(self) -> list[Tensor]:
        """Makes room for the tables of a graph, which reads them at every replay: they have to live as long as it does.

        The room is not the graph's own memory. There a kernel that comes before the update may write to the same place.
        """
        self.unwritten.clear()
        sizes = [(ROWS * len(group["params"]), group["lr"].device) for group in self.param_groups]
        self.room = [torch.empty(size, dtype=torch.int64, device=device) for size, device in sizes]
        return self.room

    def captured(self) -> None:
        """Writes the tables of the graph that was captured."""
        for table, rows in self.unwritten:
            table.copy_(rows)
        self.room = []
        self.unwritten.clear()


def capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def suits(p: Tensor, m: Tensor, g: Tensor) -> bool:
    """Whether the kernel can go through all three side by side."""
    kinds = p.dtype == m.dtype == torch.float32 and g.dtype in PRECISIONS
    return passes.on_gpu(p) and kinds and p.numel() > 0 and p.stride() == m.stride() == g.stride()


def update(
    p: Tensor, m: Tensor, g: Tensor, rate: Tensor | float, *, decay: float, momentum: float, nesterov: bool
) -> None:
    """What the kernel computes, for one parameter."""
    g = g.to(p.dtype) + decay * p
    m.mul_(momentum).add_(g)
    p.sub_(rate * (g + momentum * m if nesterov else m))
