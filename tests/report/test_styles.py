"""A row looks the same in every picture, and no two rows of a picture look alike."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from onefold.report import collect, sections
from onefold.report.pictures import pictures
from onefold.report.pictures.axes import line_of
from onefold.report.pictures.picture import PRINTED, Picture
from onefold.report.pictures.render import swatch_svg
from onefold.report.pictures.style import METHODS, PERTURBATIONS, Style, styles_of


class Row(NamedTuple):
    method: str
    perturbation: str = "none"
    kind: str = "student"
    members: int = 4


SINGLE, ENSEMBLE = Row("supervised", kind="single", members=1), Row("supervised", kind="ensemble")
TABLED = [("single", SINGLE), ("ensemble", ENSEMBLE)]
TABLED += [(f"{method} {name}", Row(method, name)) for method in METHODS for name in PERTURBATIONS]


def look(style: Style) -> tuple[str, object]:
    return style.colour, style.dashes


def test_every_row_of_the_table_is_known_by_its_hue_and_dashes() -> None:
    styles = styles_of(TABLED)
    assert len({look(style) for style in styles.values()}) == len(TABLED)
    for method, name in itertools.product(METHODS, PERTURBATIONS):
        assert styles[f"{method} {name}"].colour == styles[f"{method} none"].colour
        assert styles[f"{method} {name}"].dashes == styles[f"kd {name}"].dashes
    assert not {styles["single"].colour, styles["ensemble"].colour} & {colour for colour, _ in METHODS.values()}


def test_it_does_not_depend_on_who_else_is_there() -> None:
    every = styles_of(TABLED)
    for label, row in TABLED:
        assert styles_of([("mine", Row("mine")), (label, row)])[label] == every[label]


def test_what_onefold_does_by_itself_stands_out() -> None:
    styles = styles_of(TABLED)
    default = styles.pop("latentbe tdiv-sdiv")
    assert all(default.width > style.width for style in styles.values())
    in_front = line_of(default, PRINTED).get_zorder()
    assert all(in_front > line_of(style, PRINTED).get_zorder() for style in styles.values())


def test_methods_of_ones_own_have_hues_of_their_own() -> None:
    rows = [("mine", Row("mine")), ("mine, perturbed", Row("mine", "tdiv")), ("other", Row("other")), ("kd", Row("kd"))]
    styles = styles_of(rows)
    assert styles["mine"].colour == styles["mine, perturbed"].colour
    assert styles["mine"].dashes != styles["mine, perturbed"].dashes
    assert len({styles[name].colour for name in ("mine", "other", "kd")}) == 3
    assert styles["mine"].colour not in {colour for colour, _ in METHODS.values()}


@pytest.mark.parametrize("row", [Row("kd"), SINGLE, Row("latentbe", "tdiv-sdiv"), Row("mine")])
def test_rows_that_differ_in_something_else_are_told_apart(row: Row) -> None:
    rows = [(f"epochs {k}", row) for k in range(9)]
    styles = styles_of(rows)
    assert list(styles) == [label for label, _ in rows]
    assert len({look(style) for style in styles.values()}) == len(rows)


def test_of_ensembles_the_largest_has_the_plain_line() -> None:
    styles = styles_of([("of 2", ENSEMBLE._replace(members=2)), ("of 4", ENSEMBLE)])
    assert styles["of 4"].dashes == ()
    assert styles["of 2"].dashes


@pytest.fixture(scope="module")
def drawn(everything: Path) -> list[Picture]:
    (section,) = sections(collect([everything])[0])
    return pictures(section)


def seen(line: Line2D) -> tuple[object, ...]:
    """What tells a line from another."""
    marker, pattern = line.get_marker(), getattr(line, "_unscaled_dash_pattern")  # noqa: B009
    mark = "" if marker in (None, "None", "") else f"{marker} {line.get_fillstyle()} {line.get_markerfacecolor()}"
    joined = line.get_linestyle() != "None"
    colour = to_hex(line.get_color())
    return colour, mark, (pattern, line.get_linewidth()) if joined else None


def test_a_legend_shows_what_is_drawn(drawn: list[Picture]) -> None:
    """Marks where there are marks, and the widths and dashes of the lines: each entry is a line of some panel."""
    checked = 0
    for picture in drawn:
        lines = set()
        for panel in picture.panels:
            figure = Figure(figsize=panel.size)
            panel.draw(figure, PRINTED)
            lines |= {seen(line) for axes in figure.axes for line in axes.lines}
        for label, style in picture.legend:
            if style.colour != "ink":  # which stands for whatever hue a mark may have
                assert seen(line_of(style, PRINTED)) in lines, (picture.name, label)
                checked += 1
    assert checked > 20


@pytest.mark.parametrize(("label", "row"), TABLED)
def test_the_swatch_of_a_page_is_what_a_file_shows(label: str, row: Row) -> None:
    style = styles_of([(label, row)])[label]
    swatch, line = swatch_svg(style), line_of(style, PRINTED)
    dashes = re.findall(r'stroke-dasharray="([^"]*)"', swatch)
    pattern = getattr(line, "_dash_pattern")[1]  # noqa: B009
    assert dashes == ([" ".join(f"{length:g}" for length in pattern)] if pattern else [])
    assert f'stroke-width="{line.get_linewidth():g}"' in swatch
    assert f"var(--{style.colour})" in swatch
    numbers = [float(n) for n in re.findall(r"-?\d+\.\d+", swatch.split('d="')[1].split('"')[0])]
    ys = numbers[1::2]
    assert max(ys) - min(ys) == pytest.approx(style.size, rel=0.45)  # a star and a triangle fill less than their box
    assert "<path" not in swatch_svg(style.bare)
    assert "<line" not in swatch_svg(style.alone)
