"""Networks that cannot be used as they are given are refused with what to give instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onefold import Teachers, batch_ensemble, distill, evaluate
from onefold.ensemble import Plain

X, Y = torch.rand(6, 4), torch.arange(6) % 3


class Masked(nn.Module):
    """Needs a mask beside its inputs, unless it is built with one."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.as_tensor(self.head(x * mask))


class Optional(Masked):
    def forward(self, x: Tensor, mask: Tensor | None = None, *more: Any, **others: Any) -> Tensor:  # noqa: ARG002
        return super().forward(x, torch.ones_like(x) if mask is None else mask)


def supervised(net: nn.Module) -> Any:
    return distill(None, net, (X, Y), method="supervised", epochs=1, device="cpu", workers=0)


def compiled(net: nn.Module) -> Any:
    return torch.compile(net, backend="eager")


WAYS: list[tuple[str, Callable[[nn.Module], Any]]] = [
    ("net", supervised),
    ("net", lambda net: distill([nn.Linear(4, 3)], net, (X, Y), epochs=1)),
    ("net", lambda net: batch_ensemble(net, 2)),
    ("networks: teacher 1", lambda net: Teachers([nn.Linear(4, 3), net])),
]


@pytest.mark.parametrize(
    ("name", "use"), [*WAYS, ("net", Plain), ("model", lambda net: evaluate(net, (X, Y), device="cpu"))]
)
def test_a_network_takes_one_tensor(name: str, use: Callable[[nn.Module], Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: .* one tensor .* got Masked, whose forward also needs mask; "):
        use(Masked())
    use(Optional())
    filled = Masked()
    filled.register_forward_pre_hook(lambda _, given: (*given, torch.ones(4)))
    use(filled)


@pytest.mark.parametrize(("name", "use"), WAYS)
def test_a_compiled_network_is_refused(name: str, use: Callable[[nn.Module], Any]) -> None:
    net = nn.Linear(4, 3)
    with pytest.raises(ValueError, match=rf"^{name}: .* wrapped by torch\.compile; give net\._orig_mod"):
        use(compiled(net))
    net.compile()  # in place, which leaves its class and keys
    use(net)


def test_a_compiled_network_is_evaluated() -> None:
    net = nn.Linear(4, 3)
    assert evaluate(compiled(net), (X, Y), device="cpu") == evaluate(net, (X, Y), device="cpu")
