"""The picture of corrupted images against the measurements it is drawn from."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from onefold.report import Section, collect, grids, sections
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


def without(section: Section, place: int, source: str | None) -> Section:
    """The first network of a row was not measured, or all of them on other images."""
    row = section.rows[place]
    kept = row.answers[1:] if source is None else ()
    answers = list(kept)
    for answer in row.answers[: len(row.answers) - len(kept)]:
        of = answer.measurements.corruption
        assert of is not None
        other = None if source is None else dataclasses.replace(of, source=source)
        measurements = dataclasses.replace(answer.measurements, corruption=other)
        answers.append(dataclasses.replace(answer, measurements=measurements))
    rows = [*section.rows[:place], dataclasses.replace(row, answers=tuple(answers)), *section.rows[place + 1 :]]
    return dataclasses.replace(section, rows=tuple(rows))


def test_the_clean_images_are_a_mean_over_the_networks_measured(section: Section) -> None:
    fewer = without(section, 2, None)
    clean = [100 * value for value in (section.rows[2].values["acc"][1], section.rows[0].mean("acc") or 0.0)]
    assert lines_of(fewer, 0)[1][3][0] == pytest.approx(clean[0] - clean[1])


def test_rows_measured_on_other_images_are_named_and_not_compared(section: Section) -> None:
    other = without(section, 2, "generated, seed 0")
    tables = {grid.name: grid for grid in grids(other)}
    labels = [label for label, _ in tables["corruption"].rows]
    assert labels[2:4] == ["KD: generated, seed 0", "BE: CIFAR-10-C (published)"]
    assert tables["corruption-acc"].headings == tuple(labels)
    assert not any(cell.best for _, cells in tables["corruption"].rows for cell in cells)
    assert any(cell.best for grid in grids(section) if grid.name == "corruption" for _, c in grid.rows for cell in c)
    picture = corruption_picture(other, looks(other))
    assert picture is not None
    assert [label for label, _ in picture.legend] == [row.label for row in section.rows if row.label != "KD"]
    assert "Only rows measured on the same images as the first: CIFAR-10-C (published)." in picture.caption
