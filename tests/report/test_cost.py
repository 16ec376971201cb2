"""What ensembles and students reach, against the passes that an image takes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from onefold.recipe import DistillRecipe, to_dict
from onefold.recipes import cifar10
from onefold.report import COLUMNS, Section, collect, sections
from onefold.report.pictures.cost import (
    Drawing,
    Ensembles,
    Point,
    columns,
    cost_picture,
    draw,
    drawing_of,
    side_by_side,
)
from onefold.report.pictures.labels import apart, folded
from onefold.report.pictures.picture import PRINTED, SIZES, Panel
from onefold.report.pictures.style import ENSEMBLE, Style, styles_of
from onefold.run import RunFolder

WriteRun = Callable[..., RunFolder]


@pytest.fixture(scope="module")
def section(everything: Path) -> Section:
    (only,) = sections(collect([everything])[0])
    return only


def looks(section: Section) -> dict[str, Style]:
    return styles_of((row.label, row.first) for row in section.rows)


def test_values_are_those_of_the_rows(section: Section) -> None:
    cnll = COLUMNS[3]
    assert columns([section]) == (COLUMNS[0], cnll)
    drawing = drawing_of(section, cnll, looks(section))
    (ensembles,) = drawing.ensembles
    line = ensembles.points
    assert ensembles.name == "ensemble of 4"
    assert [point.passes for point in line] == [1, 2, 3, 4]
    # One network is the mean of all four, not the first of them.
    assert line[0].value == section.rows[0].mean("cnll") != section.sizes[0].mean("cnll")
    assert [point.value for point in line[1:]] == [row.mean("cnll") for row in section.sizes[1:]]
    by_name = {name: point for name, point, _ in drawing.students}
    assert list(by_name) == ["KD", "BE", "LatentBE", "LatentBE + TDiv-SDiv"]
    for row in section.of_kind("student"):
        assert (by_name[row.label].value, by_name[row.label].deviation) == (row.mean("cnll"), row.deviation("cnll"))
    assert {name: point.passes for name, point in by_name.items()} == dict.fromkeys(by_name, 1) | {"BE": 4}


def test_without_validation_it_is_the_plain_likelihood(section: Section) -> None:
    bare = tuple(
        dataclasses.replace(row, values={key: value for key, value in row.values.items() if key != "cnll"})
        for row in section.rows
    )
    assert columns([dataclasses.replace(section, rows=bare)])[1] == COLUMNS[1]
    assert columns([section, dataclasses.replace(section, rows=bare)])[1] == COLUMNS[1]


def test_without_an_ensemble_there_is_no_picture(section: Section) -> None:
    students = dataclasses.replace(section, rows=tuple(section.of_kind("student")), sizes=())
    assert cost_picture(students, looks(students)) is None
    assert side_by_side([("a", section)]) is None
    assert side_by_side([("a", section), ("b", students)]) is None


def test_beside_each_other_are_the_students_that_all_have(section: Section) -> None:
    fewer = dataclasses.replace(section, rows=tuple(row for row in section.rows if row.label not in ("KD", "BE")))
    picture = side_by_side([("one", section), ("other", fewer)])
    assert picture is not None
    assert [panel.title for panel in picture.panels] == ["one", "other"]
    assert all("LatentBE" in panel.description and "KD" not in panel.description for panel in picture.panels)


def texts(panel: Panel, size: float) -> tuple[Figure, list[Text]]:
    with matplotlib.rc_context({"font.size": size}):
        figure = Figure(figsize=panel.size)
        FigureCanvasAgg(figure)
        panel.draw(figure, PRINTED)
        figure.draw_without_rendering()
    (axes,) = figure.axes
    return figure, [text for text in axes.texts if text.get_text()]


@pytest.mark.parametrize("large", [False, True])
def test_names_are_in_the_picture_and_apart(section: Section, large: bool) -> None:
    alone = cost_picture(section, looks(section))
    both = side_by_side([("one", section), ("other", section)])
    assert alone is not None
    assert both is not None
    for panel in both.panels if large else alone.panels:
        figure, found = texts(panel, both.text if large else alone.text)
        assert len(found) == 6  # four students, the ensemble, a single network
        boxes = [text.get_window_extent() for text in found]
        for k, box in enumerate(boxes):
            assert box.x0 > figure.axes[0].bbox.x0
            assert box.x1 <= figure.bbox.x1
            assert not any(box.overlaps(other) for other in boxes[:k])


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        ([1.0, 5.0], [1.0, 5.0]),
        ([4.0, 4.0], [3.0, 5.0]),
        ([4.0, 4.0, 4.0], [2.0, 4.0, 6.0]),
        ([0.0, 9.5], [1.0, 9.0]),
        ([2.0, 3.0, 9.0], [1.5, 3.5, 9.0]),
        ([2.0, 4.5, 5.0], [1 + 5 / 6, 3 + 5 / 6, 5 + 5 / 6]),
    ],
)
def test_labels_make_room_for_each_other(wanted: list[float], places: list[float]) -> None:
    """Two high each, in ten: what overlaps shares the way, and the rest stays."""
    assert apart(wanted, [2.0] * len(wanted), 0.0, 10.0) == pytest.approx(places)


def test_two_groups_of_teachers_have_names_and_lines_of_their_own(tmp_path: Path, write: WriteRun) -> None:
    for place, epochs in (("a", 200), ("b", 20)):
        recipe = dataclasses.replace(cifar10(), epochs=epochs)
        for m in range(3):
            write(tmp_path / place / f"teacher-{m}", recipe, 0, member=m, measured=False)
        for k, method in enumerate(("kd", "be", "latentbe")):
            student = dataclasses.replace(cifar10(), distill=DistillRecipe(method, "none"))
            run = write(tmp_path / f"{place}-{method}", student, k, measured=False)
            told = {"teachers_are": f"{epochs:032}", "teachers_trained": {"recipe": to_dict(recipe)}}
            run.write_json("run.json", run.about | told)
    (section,) = sections(collect([tmp_path])[0])
    drawing = drawing_of(section, COLUMNS[0], looks(section))
    assert [one.name for one in drawing.ensembles] == ["ensemble of 3 (epochs 200)", "ensemble of 3 (epochs 20)"]
    assert len({one.style.dashes for one in drawing.ensembles}) == 2
    assert "ensemble of 2 (epochs 20) " in drawing.words
    picture = cost_picture(section, looks(section))
    assert picture is not None
    for panel in picture.panels:
        figure, found = texts(panel, picture.text)
        shown = [" ".join(text.get_text().split()) for text in found]
        assert {"ensemble of 3 (epochs 20)", "KD (teachers' epochs 20)"} <= {*shown}
        boxes = [text.get_window_extent() for text in found if text.get_text() != "single network"]
        for k, box in enumerate(boxes):
            assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
            assert box.x1 <= figure.bbox.x1
            assert not any(box.overlaps(other) for other in boxes[:k])


@pytest.mark.parametrize("gain", [0.01, -0.01, 0.3, -0.3])
def test_the_single_network_is_named_beside_the_line_not_on_it(section: Section, gain: float) -> None:
    """Also if the line is nearly flat, and runs along the end of the axis."""
    values = [50 + 100 * gain * k for k in range(4)]
    points = tuple(Point(k + 1, value, None) for k, value in enumerate(values))
    ensembles = Ensembles("ensemble of 4", ENSEMBLE, ("",) * 4, points)
    marks = (("KD", Point(1, 50 + 30 * (1 if gain > 0 else -1), None), looks(section)["KD"]),)
    drawn = functools.partial(draw, Drawing(COLUMNS[0], (ensembles,), marks))
    figure, found = texts(Panel("", "", drawn, SIZES[2]), 10)
    (axes,) = figure.axes
    (name,) = [text for text in found if text.get_text() == "single network"]
    box = name.get_window_extent()
    along = np.linspace(1, 4, 300)
    line = axes.transData.transform(np.stack([along, np.interp(along, range(1, 5), values)], axis=1))
    assert not any(box.contains(x, y) for x, y in line)
    assert axes.bbox.y0 < box.y0 < box.y1 < axes.bbox.y1


def test_a_long_name_is_broken_before_its_last_part_and_its_details() -> None:
    assert folded("LatentBE + TDiv-SDiv", 13) == "LatentBE\n+ TDiv-SDiv"
    assert folded("LatentBE + TDiv-SDiv", 30) == "LatentBE + TDiv-SDiv"
    assert folded("KD (epochs 20)", 13) == "KD\n(epochs 20)"
    assert folded("BE + ODS (epochs 20)", 13) == "BE + ODS\n(epochs 20)"
    assert folded("BE (2 teachers, epochs 200)", 22) == "BE\n(2 teachers,\nepochs 200)"
    assert folded("KD (teachers' epochs 20)", 13) == "KD\n(teachers'\nepochs 20)"
    assert folded("KD (epochs 20)", 13, strong=True) == "KD\n(epochs 20)"
