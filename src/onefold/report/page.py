"""Tables and pictures as a single, self-contained HTML file that works offline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onefold.report.grid import Grid
from onefold.report.missing import missing
from onefold.report.table import Row, Section
from onefold.report.unfinished import Unfinished
from onefold.run import GENERATOR

MAIN = 3  # pictures that come right after the results, before the other tables
Tables = Sequence[tuple[Section, Sequence[Grid], Sequence[str]]]


def page(
    tables: Tables,
    title: str,
    introduction: Sequence[str] = (),
    notes: Sequence[str] = (),
    going: Sequence[Unfinished] = (),
) -> str:
    import jinja2  # imported only where it is used, like matplotlib
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("onefold.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        title=title,
        generator=Markup(GENERATOR),
        introduction=introduction,
        notes=notes,
        sections=[as_shown(number, *table) for number, table in enumerate(tables)],
        unfinished=[drawn(len(tables), picture) for picture in pictures_of_unfinished(going)],
    )


def as_shown(number: int, section: Section, grids: Sequence[Grid], sentences: Sequence[str]) -> dict[str, Any]:
    """A section in the form the template takes: the results, three pictures, the other tables, the other pictures."""
    place, lacking = f"section-{number}", missing(section)
    pictures = [drawn(number, picture) for picture in pictures_of(section)]
    tables = [(f"{place}-table-{grid.name}", grid.title) for grid in grids]
    shown = [(picture["id"], picture["title"]) for picture in pictures]
    contents = [*tables[:1], *shown[:MAIN], *tables[1:], *shown[MAIN:]]
    return {
        "id": place,
        "title": section.title,
        "sentences": sentences,
        "grids": grids,
        "columns": section.columns,
        "default": [row.label for row in section.rows if row.first.is_default],
        "pictures": (pictures[:MAIN], pictures[MAIN:]),
        "missing": lacking,
        "contents": contents + ([(f"{place}-missing", "Not measured yet")] if lacking else []),
        "recipe": recipe_of(section),
        "environments": environments(section),
        "origins": [origin for row in section.rows for origin in origins(row)],
    }


def pictures_of(section: Section) -> Sequence[Any]:
    from onefold.report.pictures import pictures

    return pictures(section)


def pictures_of_unfinished(going: Sequence[Unfinished]) -> Sequence[Any]:
    if not going:
        return []
    from onefold.report.pictures import unfinished_pictures

    return unfinished_pictures(going)


def drawn(number: int, picture: Any) -> dict[str, Any]:
    from markupsafe import Markup

    from onefold.report.pictures.render import panel_svg, swatch_svg

    return {
        "id": f"section-{number}-{picture.name}",
        "title": picture.title,
        "caption": picture.caption,
        "columns": picture.columns,
        "legend": [(label, Markup(swatch_svg(style))) for label, style in picture.legend],
        "panels": [
            {
                "title": panel.title,
                "under": panel.under,
                "svg": Markup(panel_svg(panel, f"p{number}-{picture.name}-{k}")),
            }
            for k, panel in enumerate(picture.panels)
        ],
    }


def recipe_of(section: Section) -> list[tuple[str, str]]:
    """Every field of the recipes; if rows differ, the value for each row."""
    names = list(dict.fromkeys(name for row in section.rows for name in row.first.setting))
    fields = []
    for name in names:
        held = [(row.label, row.first.setting[name]) for row in section.rows if name in row.first.setting]
        values = {repr(value) for _, value in held}
        if len(values) == 1:
            fields.append((name, str(held[0][1])))
        else:
            fields.append((name, "; ".join(f"{label}: {value}" for label, value in held)))
    return fields


def environments(section: Section) -> list[str]:
    """Versions and hardware of the runs, each combination once."""
    found: dict[str, list[str]] = {}
    for row in section.rows:
        for answer in row.answers:
            flat = answer.env | (answer.env.get("libraries") or {})
            said = [f"{k} {v}" for k, v in flat.items() if isinstance(v, str | int | float)]
            if said:
                found.setdefault(", ".join(said), []).append(row.label)
    if len(found) == 1:
        return list(found)
    return [f"{', '.join(dict.fromkeys(labels))}: {said}" for said, labels in found.items()]


def origins(row: Row) -> list[dict[str, Any]]:
    temperatures = row.values.get("temperature", [])
    known = temperatures if len(temperatures) == row.networks else [math.nan] * row.networks
    return [
        {
            "label": row.label,
            "seed": answer.seed,
            "temperature": "–" if math.isnan(temperature) else f"{temperature:.3f}",
            "folder": str(answer.folder),
        }
        for answer, temperature in zip(row.answers, known, strict=True)
    ]
