"""The picture of corrupted images against the measurements it is drawn from."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from onefold.report import Section, collect, sections
from onefold.report.pictures.corruption import corruption_picture
from onefold.report.pictures.picture import PRINTED
from onefold.report.pictures.style import Style, styles_of


@pytest.fixture(scope="module")
def section(everything: Path) -> Section:
    (only,) = sections(collect([everything])[0])
    return only


def looks(section: Section) -> dict[str, Style]:
    return styles_of((row.label, row.first) for row in section.rows)


def lines_of(section: Section, place: int) -> tuple[str, list[list[float]]]:
    """The title of a panel, and the values of its lines."""
    picture = corruption_picture(section, looks(section))
    assert picture is not None
    panel = picture.panels[place]
    figure = Figure(figsize=panel.size)
    panel.draw(figure, PRINTED)
    return panel.title, [np.asarray(line.get_ydata(), dtype=float).tolist() for line in figure.axes[0].lines]


def accuracies(runs: list[Path]) -> list[float]:
    """By severity, over the corruptions of the benchmark, in percent."""
    rows = [row for run in runs for row in json.loads((run / "measurements" / "corruption.json").read_text())["rows"]]
    kept = [row for row in rows if row["corruption"] != "speckle_noise"]
    return [100 * statistics.fmean(row["acc"] for row in kept if row["severity"] == s) for s in range(1, 6)]


def test_accuracies_are_less_the_single_networks(section: Section, everything: Path) -> None:
    title, (zero, *lines) = lines_of(section, 0)
    assert title == "ACC % minus the single network's"
    assert zero == [0, 0]
    assert lines[0] == [0] * 6
    singles = accuracies([everything / "teachers" / f"teacher-{m}" for m in range(4)])
    ours = accuracies([everything / f"seed-{seed}" / "kd" for seed in range(2)])
    assert lines[2][1:] == pytest.approx([a - b for a, b in zip(ours, singles, strict=True)])
    clean = [100 * (row.mean("acc") or 0.0) for row in (section.rows[0], section.rows[2])]
    assert lines[2][0] == pytest.approx(clean[1] - clean[0])
    picture = corruption_picture(section, looks(section))
    assert picture is not None
    told = ", ".join(f"{value:.2f}" for value in (clean[0], *singles))
    assert f"which is {told}% at severities 0 to 5" in picture.caption


def test_without_a_single_network_they_are_as_they_are(section: Section, everything: Path) -> None:
    students = dataclasses.replace(section, rows=tuple(section.of_kind("student")), sizes=())
    title, lines = lines_of(students, 0)
    assert title == "ACC % by severity"
    assert lines[0][1:] == pytest.approx(accuracies([everything / f"seed-{seed}" / "kd" for seed in range(2)]))
    assert lines_of(students, 1)[0] == lines_of(section, 1)[0] == "NLL by severity"
