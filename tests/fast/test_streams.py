"""Which streams parts of a step get; that they overlap rightly is for a GPU to show (tests/gpu)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from onefold import Teachers, batch_ensemble
from onefold.fast import streams
from onefold.fast.streams import beside, given_back, side_by_side, together
from onefold.models import wide_resnet
from onefold.perturb import tdiv_sdiv


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
