"""Numbers in a line of text, and tables as LaTeX."""

from __future__ import annotations

import math

import pytest

from onefold.paper import found
from onefold.report.formats import worded
from onefold.report.grid import Number

PAPER = found("CIFAR-10", "WRN28x1", "KD", "DE-4")  # accuracy 93.70 ± 0.10


def test_a_number_and_its_deviation_stand_on_one_line() -> None:
    text = worded(Number(93.4, 0.2, 2, PAPER["ACC"]))
    assert text == "93.40\u00a0±\u00a00.20 (paper 93.70\u00a0±\u00a00.10, \u22123.0\u00a0σ)"
    assert worded(Number(-0.5, digits=1)) == "\u22120.5"
    assert worded(Number(None, paper=PAPER["ACC"])) == "–"


def test_deviations_of_both_are_combined() -> None:
    assert Number(93.4, 0.2, 2, PAPER["ACC"]).combined == pytest.approx(-0.3 / math.sqrt(0.2**2 + 0.1**2))
    assert Number(93.4, None, 2, PAPER["ACC"]).combined is None
    assert Number(93.4, 0.0, 2, PAPER["ACC"]).combined is None
    assert Number(93.4, 0.2, 2).combined is None
