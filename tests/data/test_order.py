from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onefold.data.order import check_plan, draw_seed, order_of, part_of, steps_in


def test_seeds_of_different_things_differ() -> None:
    named = [("order", seed, epoch) for seed in range(30) for epoch in range(30)] + [("augment", 0, 0), ("order", 0)]
    seeds = {draw_seed(*parts) for parts in named}
    assert len(seeds) == len(named)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_seeds_are_the_same_on_every_machine() -> None:
    # Written down: a change here would give every run another order.
    assert draw_seed("order", 0, 0) == 4876581156571347824


def test_an_order_is_a_permutation_by_seed_and_epoch() -> None:
    first = order_of(100, seed=1, epoch=2, shuffle=True)
    assert first.sort().values.tolist() == list(range(100))
    assert torch.equal(first, order_of(100, seed=1, epoch=2, shuffle=True))
    assert not torch.equal(first, order_of(100, seed=2, epoch=1, shuffle=True))
    assert order_of(5, seed=1, epoch=2, shuffle=False).tolist() == [0, 1, 2, 3, 4]


@settings(deadline=None, max_examples=60)
@given(examples=st.integers(1, 60), share=st.integers(1, 6), world=st.integers(1, 5), drop_last=st.booleans())
def test_parts_of_all_ranks_are_the_batches(examples: int, share: int, world: int, drop_last: bool) -> None:
    batch = share * world
    seen: list[int] = []
    for step in range(steps_in(examples, batch, drop_last)):
        for rank in range(world):
            first, last = part_of(step, examples, batch, rank, world)
            assert first <= last <= (step + 1) * batch
            seen += range(first, last)
    full = examples // batch * batch
    assert seen == list(range(full if drop_last else examples))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 0, False, 0, 1), "batch_size: expected at least 1, got 0"),
        ((10, 4, False, 2, 2), "rank: expected 0 to world_size - 1, got rank 2 of world_size 2"),
        ((10, 5, False, 0, 2), "batch_size: expected a multiple of the 2 processes, got 5"),
        ((10, 16, True, 0, 1), "batch_size: expected at most the 10 examples there are, got 16"),
    ],
)
def test_refuses_batches_that_cannot_be_made(arguments: tuple[int, int, bool, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_plan(*arguments)
