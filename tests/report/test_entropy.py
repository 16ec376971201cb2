"""Pictures of the predictive entropy against the histograms that they are drawn from."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onefold.report import Section, collect, sections
from onefold.report.pictures import pictures
from onefold.report.pictures.entropy import of_note
from onefold.report.pictures.picture import PRINTED, Panel, Picture

LABELS = ["single network", "ensemble of 4", "KD", "BE", "LatentBE", "LatentBE + TDiv-SDiv"]


@pytest.fixture(scope="module")
def section(everything: Path) -> Section:
    (only,) = sections(collect([everything])[0])
    return only


@pytest.fixture(scope="module")
def drawn(section: Section) -> dict[str, Picture]:
    return {picture.name: picture for picture in pictures(section)}


def axes_of(panel: Panel) -> Axes:
    figure = Figure(figsize=panel.size)
    panel.draw(figure, PRINTED)
    (axes,) = figure.axes
    return axes


def test_shares_above_are_those_of_the_images(drawn: dict[str, Picture], everything: Path) -> None:
    panels = drawn["entropy"].panels
    assert [panel.title for panel in panels] == ["svhn", "lsun"]
    lines = axes_of(panels[1]).lines
    assert len(lines) == 2 * len(LABELS)  # a thin one of the test images before each
    runs = [everything / f"seed-{seed}" / "kd" / "measurements" / "ood.json" for seed in range(2)]
    content = [json.loads(path.read_text()) for path in runs]
    place = 2 * LABELS.index("KD")
    for line, histograms in (
        (lines[place], [each["inside"]["entropy"] for each in content]),
        (lines[place + 1], [each["sets"][1]["entropy"] for each in content]),
    ):
        counts = np.sum([each["counts"] for each in histograms], axis=0)
        x, y = (np.asarray(values) for values in line.get_data())
        assert x.tolist() == histograms[0]["edges"]
        assert y[0] == 100
        assert y[-1] == 0
        assert y[7] == pytest.approx(100 * counts[7:].sum() / counts.sum())
    assert lines[place].get_linewidth() < lines[place + 1].get_linewidth()


def test_histograms_share_their_axis(drawn: dict[str, Picture]) -> None:
    picture = drawn["entropy-histograms"]
    assert [panel.title for panel in picture.panels] == ["single network", "ensemble of 4", "LatentBE + TDiv-SDiv"] * 2
    assert len({axes_of(panel).get_ylim() for panel in picture.panels}) == 1
    assert [panel.under.partition(",")[0] for panel in picture.panels] == ["svhn"] * 3 + ["lsun"] * 3
    assert all("AUROC 0.9" in panel.under for panel in picture.panels)
    assert picture.caption.endswith("in each bin, on a logarithmic axis. AUROC is that of the entropy.")  # of any data


def test_without_the_default_the_best_student_is_shown(section: Section) -> None:
    rows = [row for row in section.rows if row.label != "LatentBE + TDiv-SDiv"]
    best = min((row for row in rows if row.first.kind == "student"), key=lambda row: row.mean("nll") or 0.0)
    assert of_note(rows) == [section.rows[0], section.rows[1], best]
    assert of_note(rows[:2]) == rows[:2]


def test_without_measurements_there_is_none(section: Section) -> None:
    answer = section.rows[0].first
    bare = dataclasses.replace(answer, measurements=dataclasses.replace(answer.measurements, ood=None))
    row = dataclasses.replace(section.rows[0], answers=(bare,))
    names = [picture.name for picture in pictures(dataclasses.replace(section, rows=(row,), sizes=()))]
    assert not [name for name in names if name.startswith("entropy")]
