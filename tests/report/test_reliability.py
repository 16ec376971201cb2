"""Reliability diagrams: what their bars say of the bins."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from onefold.metrics import Reliability
from onefold.report.pictures.picture import PRINTED
from onefold.report.pictures.reliability import LEAST, draw


def test_bars_are_accuracies_and_shares() -> None:
    count = torch.zeros(15)
    count[[3, 9, 14]] = torch.tensor([5.0, 95.0, 900.0])
    middle = (torch.arange(15) + 0.5) / 15
    confidence = torch.where(count > 0, middle, torch.nan)
    accuracy = torch.where(count > 0, middle - 0.1, torch.nan)
    figure = Figure(figsize=(2.25, 2.9))
    draw(figure, PRINTED, Reliability(count, confidence, accuracy))
    upper, lower = figure.axes
    few, many = [c for c in upper.collections if isinstance(c, PolyCollection)][::2]
    tops = [float(np.asarray(path.vertices)[:, 1].max()) for bars in (few, many) for path in bars.get_paths()]
    assert sorted(tops) == pytest.approx([float(accuracy[k]) for k in (3, 9, 14)])
    assert lower.get_yscale() == "log"
    assert lower.get_ylim() == (LEAST, 100)
    (shares,) = lower.collections
    assert isinstance(shares, PolyCollection)
    heights = [float(np.asarray(path.vertices)[:, 1].max()) for path in shares.get_paths()]
    assert [heights[k] for k in (3, 9, 14)] == pytest.approx([0.5, 9.5, 90.0])
