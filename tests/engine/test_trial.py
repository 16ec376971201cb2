"""Which differences between memory formats count."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from onefold.engine.alike import Gradients
from onefold.engine.trial import NO_ROOM, FailsAnyway, difference, failure, first_refusal

X = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
NEVER = torch.device("cpu")


def alike(found: Gradients, expected: Gradients) -> bool:
    return torch.allclose(found[""], expected[""], rtol=1e-3)


def asked(function: Callable[[Tensor], Tensor]) -> str:
    random = torch.get_rng_state()
    reason = difference(lambda x, _: {"": function(x)}, X, alike)
    assert torch.equal(torch.get_rng_state(), random)
    return reason


def by_memory(x: Tensor) -> Tensor:
    return x.as_strided((x.numel(),), (1,))


def test_what_does_not_depend_on_the_format() -> None:
    assert asked(lambda x: x.mean((2, 3))) == ""
    assert asked(lambda x: F.dropout(x, 0.5)) == ""  # drawn in the order of the memory


def test_what_depends_on_it() -> None:
    assert asked(by_memory) == "its outputs differ"
    assert asked(lambda x: by_memory(F.dropout(x, 0.5))) == "its outputs differ"
    assert asked(lambda x: x.view(-1)).startswith("view size is not compatible")


def test_what_cannot_be_compared() -> None:
    numbers = count(1)
    assert asked(lambda x: by_memory(x) * next(numbers)) == ""  # never the same
    assert asked(lambda x: 1e9 * (x + by_memory(x)[0] * 1e-5).sub(X).sum()[None]) == ""  # nothing but rounding


def test_what_fails_anyway() -> None:
    with pytest.raises(FailsAnyway):
        asked(lambda x: x.view(7))
    with pytest.raises(FailsAnyway):
        failure(lambda _: X.view(7), NEVER)


def test_a_step_that_fails() -> None:
    assert failure(lambda _: X, NEVER) == ""
    assert failure(lambda layout: X.contiguous(memory_format=layout).view(-1), NEVER).startswith("view size")


def full(*_: object) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_no_memory_is_no_refusal() -> None:
    assert first_refusal([("a step", full)]) == (True, NO_ROOM)

    def moved(x: Tensor) -> Tensor:
        return x if x.is_contiguous() else full()

    def drawn(x: Tensor) -> Tensor:
        return by_memory(x) if torch.utils._python_dispatch._get_current_dispatch_mode() is None else full()

    for compute in (full, moved, drawn):
        assert first_refusal([("the student", partial(asked, compute))]) == (True, NO_ROOM)
    for fails in ((torch.channels_last,), (torch.channels_last, torch.contiguous_format)):

        def step(layout: torch.memory_format, fails: tuple[torch.memory_format, ...] = fails) -> None:
            assert layout not in fails or full()

        assert first_refusal([("a step", partial(failure, step, NEVER))]) == (True, NO_ROOM)


def test_the_first_refusal_counts() -> None:
    assert first_refusal([("one", lambda: ""), ("two", lambda: "no"), ("three", full)]) == (
        True,
        "two cannot use the channels-last memory format, which would be faster: no",
    )
    assert first_refusal([("one", lambda: asked(lambda x: x.view(7)))]) == (True, "")
    assert first_refusal([("one", lambda: "")]) == (False, "")
