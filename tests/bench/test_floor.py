"""The least time, from rates that are made up."""

from __future__ import annotations

import pytest
import torch

from onefold.bench.floor import Rates, floor_of, measure_rates
from onefold.engine.cost.counting import Forward, Operation

FORWARD = Forward((Operation("a", 1000, 10, 10), Operation("b", 20, 100, 100)))


def test_each_operation_takes_the_longer_of_both() -> None:
    floor = floor_of(FORWARD, 3, 0, Rates("bf16", flops=10.0, bytes=2.0))
    assert floor.arithmetic == pytest.approx(3 * (100 + 2))
    assert floor.bytes == pytest.approx(3 * (20 + 200))
    assert floor.seconds == pytest.approx(3 * (100 + 200))


def test_float32_moves_twice_as_much_and_the_update_comes_once() -> None:
    rates = Rates("float32", flops=1e9, bytes=4.0)
    assert floor_of(FORWARD, 2, 0, rates).bytes == pytest.approx(2 * 220)
    assert floor_of(FORWARD, 2, 8, rates).bytes == pytest.approx(2 * 220 + 8 * 20 / 4)
    assert floor_of(FORWARD, 2, 8, rates).seconds == pytest.approx(2 * 220 + 8 * 20 / 4, rel=1e-6)


def test_rates_of_this_machine() -> None:
    rates = measure_rates(torch.device("cpu"), "float32")
    assert 1e8 < rates.flops < 1e14
    assert 1e7 < rates.bytes < 1e13
