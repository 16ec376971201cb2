"""Which streams parts of a step get; that they overlap rightly is for a GPU to show (tests/gpu)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from onefold import Teachers, batch_ensemble
from onefold.engine.step import distillation_loss
from onefold.fast import streams
from onefold.fast.streams import beside, given_back, side_by_side, together
from onefold.models import wide_resnet
from onefold.objectives import one_to_one
from onefold.perturb import tdiv_sdiv
from onefold.types import Perturbation

PART = streams.Part  # the real one


class Recorded:
    """In place of a part: computes at once, and remembers which stream it would have had.

    A stream that serves one part after the other has to serve the same parent: its memory is used again once that
    parent has read it, and nobody asks another one.
    """

    taken: list[int | None]
    parents: dict[int, int | None]
    around: list[int | None]  # the streams of the parts that this one is in, the current stream first

    def __init__(self, compute: Callable[[], object], number: int | None) -> None:
        Recorded.taken.append(number)
        if number is None:
            self.result = compute()
            return
        parent = Recorded.around[-1]
        assert Recorded.parents.setdefault(number, parent) == parent, f"stream {number} has two parents"
        Recorded.around.append(number)
        self.result = compute()
        Recorded.around.pop()

    def wait(self) -> object:
        return self.result


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    Recorded.taken, Recorded.parents, Recorded.around = [], {}, [None]
    monkeypatch.setattr(streams, "Part", Recorded)


def test_one_after_the_other_unless_asked() -> None:
    assert together([lambda: 1, lambda: 2]) == [1, 2]
    assert Recorded.taken == [None]


def test_the_last_stays_on_the_current_stream() -> None:
    with side_by_side():
        assert together([lambda: 1, lambda: 2, lambda: 3]) == [1, 2, 3]
        assert Recorded.taken == [0, 1]
        together([lambda: 1, lambda: 2])  # all have been waited for: their streams are free again
    assert Recorded.taken == [0, 1, 0]


def test_parts_of_parts_take_their_parent_s_streams_and_no_others() -> None:
    inner = partial(together, [lambda: 1, lambda: 2, lambda: 3])
    with side_by_side():
        assert together([inner, inner], room=2) == [[1, 2, 3], [1, 2, 3]]
    # The first has the streams 0 and 1: one of its parts finds no more. The second is on the current stream.
    assert Recorded.taken == [0, 1, None, 2, 3]


def test_a_part_has_no_room_but_its_own_unless_told() -> None:
    with side_by_side():
        part = beside(partial(together, [lambda: 1, lambda: 2]))
        assert part.wait() == [1, 2]
    assert Recorded.taken == [0, None]


def test_more_parts_than_streams() -> None:
    many = [partial(int, k) for k in range(streams.MANY + 3)]
    with side_by_side():
        assert together(many) == list(range(streams.MANY + 3))
        assert Recorded.taken == [*range(streams.MANY), None, None]
        Recorded.parents.clear()  # all have been waited for
        assert beside(partial(together, many), room=len(many)).wait() == list(range(streams.MANY + 3))
    assert Recorded.taken[streams.MANY + 2 :] == [*range(streams.MANY), None, None, None]


def test_streams_can_be_taken_again() -> None:
    """Pieces of a batch whose gradients add up come one after the other: they need no more streams than one of them."""
    with side_by_side():
        for _ in range(3):
            with given_back():
                assert beside(lambda: 1).wait() == 1
    assert Recorded.taken == [0, 0, 0]


@pytest.mark.parametrize("widths", [(1, 1), (1, 2)], ids=["alike", "unlike"])
def test_a_perturbation_never_shares_a_stream(widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Teachers that are not alike all answer, in parts of their own, wherever one of them is asked on a GPU."""
    monkeypatch.setattr("onefold.ensemble.teachers.on_the_host", lambda _members: False)
    torch.manual_seed(0)
    x = torch.rand(2, 3, 8, 8)
    teachers = Teachers([wide_resnet(10, width) for width in widths])
    student = batch_ensemble(wide_resnet(10, 1), 2)
    with side_by_side():
        tdiv_sdiv(x, teachers, student)
    assert len([number for number in Recorded.taken if number is not None]) >= 3


class Stream:
    """In place of a CUDA stream."""

    def wait_stream(self, other: object) -> None:
        pass


# The numbers of the autograd nodes made in parts, as ranges: on a GPU their backward runs on the part's stream.
MADE: list[range] = []
WEIGHTS: list[Tensor] = []  # the nodes that store their gradients have no numbers, and are marked


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real parts, on streams that are none; `MADE` tells which autograd nodes are theirs."""

    @contextlib.contextmanager
    def entered(_: Stream) -> Iterator[None]:
        first = next_number()
        yield
        MADE.append(range(first, next_number()))
        for weight in WEIGHTS:  # those that outlive the part; this makes others, which do not
            cast(Any, get_gradient_edge(weight).node).metadata["part"] = len(MADE)

    MADE.clear()
    WEIGHTS.clear()
    monkeypatch.setattr(streams, "Part", PART)
    monkeypatch.setattr(streams, "stream", lambda _number: Stream())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: Stream())
    monkeypatch.setattr(torch.cuda, "stream", entered)


def next_number() -> int:
    return int(torch._C._autograd._get_sequence_nr())


def nodes(value: Tensor) -> list[Any]:
    """All nodes of a backward pass but those that store gradients, which have no number of their own."""
    found: dict[Any, None] = {}
    ahead: list[Any] = [value.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in found:
            found[node] = None
            ahead += [other for other, _ in node.next_functions]
    return [node for node in found if node.name() != "torch::autograd::AccumulateGrad"]


@pytest.mark.usefixtures("pretended")
def test_autocast_remembers_no_weight_from_inside_a_part() -> None:
    weight, x = torch.rand(4, 4, requires_grad=True), torch.rand(2, 4)
    ask = torch.no_grad()(partial(F.linear, x, weight))
    with torch.autocast("cpu", torch.bfloat16), side_by_side():
        before = F.linear(x, weight)
        part = beside(ask)
        after, again = F.linear(x, weight), F.linear(x, weight)
        part.wait()
    assert len(MADE) == 1
    assert len(MADE[0]) > 0, "the part cast the weight, too"
    assert not any(node._sequence_nr() in MADE[0] for node in nodes(after))
    casts = [{node for node in nodes(y) if "ToCopy" in node.name()} for y in (before, after, again)]
    assert [len(cast) for cast in casts] == [1, 1, 1]
    assert casts[0] != casts[1] == casts[2]  # outside of parts it is cast once


@pytest.mark.usefixtures("pretended")
def test_no_part_of_a_perturbation_is_in_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """SDiv asks one member in a part of its own, with the weights of the student."""
    monkeypatch.setattr("onefold.ensemble.teachers.on_the_host", lambda _members: False)
    monkeypatch.setattr("onefold.ensemble.layers.RankOneLinear.on_activations", True)
    monkeypatch.setattr("onefold.ensemble.layers.RankOneConv.on_activations", True)
    torch.manual_seed(0)
    x = torch.rand(4, 3, 8, 8)
    teachers = Teachers([wide_resnet(10, 1) for _ in range(2)])
    student = batch_ensemble(wide_resnet(10, 1), 2, example=x)
    perturb = cast(Perturbation, tdiv_sdiv)
    WEIGHTS.extend(student.parameters())
    with torch.autocast("cpu", torch.bfloat16), side_by_side():
        value = distillation_loss(x, torch.zeros(4).long(), student, teachers, one_to_one, perturb)
    assert len(MADE) >= 3
    assert sum(len(made) for made in MADE) > 10
    found = nodes(value)
    assert len(found) > 100
    assert [node.name() for node in found if any(node._sequence_nr() in made for made in MADE)] == []
    storing: list[Any] = [get_gradient_edge(weight).node for weight in WEIGHTS]
    assert len(storing) > 40
    assert [node.metadata for node in storing if "part" in node.metadata] == []
