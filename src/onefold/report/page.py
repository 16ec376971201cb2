"""Tables and pictures as one HTML file that needs nothing else: no network, no scripts."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from onefold.report.runs import collect
from onefold.report.table import Row, Section, cell, headings, sections
from onefold.run import write_aside


def report(
    paths: Iterable[Path | str],
    out: Path | str = "report.html",
    *,
    title: str = "onefold report",
    introduction: Sequence[str] = (),
) -> tuple[Path, list[Section]]:
    """Writes the page for every run under the folders; gives its path and the tables on it."""
    answers, notes = collect(paths)
    if not answers:
        raise ValueError("; ".join(notes) or "no run to report on; give the folder of a finished one")
    tables = sections(answers)
    out = Path(out).expanduser()
    if out.is_dir():
        raise ValueError(f"out: {out} is a folder; name a file in it, such as {out / 'report.html'}")
    content = page(tables, title, introduction, notes)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_aside(out, content.encode())
    except OSError as error:
        raise ValueError(f"out: cannot write {out} ({error.strerror}); choose another file") from None
    return out.resolve(), tables


def page(tables: Sequence[Section], title: str, introduction: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    import jinja2  # this and matplotlib are loaded when there is something to draw

    from onefold.report.diagram import FEW

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("onefold.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        title=title,
        introduction=introduction,
        notes=notes,
        few=FEW,
        sections=[as_shown(section) for section in tables],
    )


def as_shown(section: Section) -> dict[str, Any]:
    """A section as the template takes it."""
    examples = section.rows[0].examples
    networks = max(row.networks for row in section.rows)
    caption = f"{examples:,} test images."
    if networks > 1:
        caption += " Mean and standard deviation over the networks of a row."
    return {
        "title": section.title,
        "caption": caption,
        "headings": headings(section.columns),
        "columns": section.columns,
        "pooled": networks > 1,
        "rows": [shown_row(row, section) for row in section.rows],
        "origins": [origin for row in section.rows for origin in origins(row)],
        "environment": environment_of(section),
    }


def shown_row(row: Row, section: Section) -> dict[str, Any]:
    from markupsafe import Markup

    from onefold.report.diagram import reliability_svg

    count = "1 network" if row.networks == 1 else f"{row.networks} networks"
    if row.label.startswith("ensemble"):
        count = count.replace("network", "ensemble")
    return {
        "label": row.label,
        "cells": [cell(row, column) for column in section.columns],
        "picture": Markup(reliability_svg(row.reliability, f"{row.label}, {section.title}")),
        "summary": f"{count}, ECE {row.mean('ece'):.4f}",
    }


def origins(row: Row) -> list[dict[str, Any]]:
    temperatures = row.values.get("temperature") or [math.nan] * row.networks
    return [
        {
            "label": row.label,
            "seed": answer.seed,
            "temperature": "–" if math.isnan(temperature) else f"{temperature:.3f}",
            "folder": os.path.commonpath(answer.paths),
        }
        for answer, temperature in zip(row.answers, temperatures, strict=True)
    ]


def environment_of(section: Section) -> str:
    """Versions and hardware of the runs, where they agree."""
    found = [answer.env for row in section.rows for answer in row.answers]
    flat = [env | env.get("libraries", {}) for env in found]
    common = {k: v for k, v in flat[0].items() if all(env.get(k) == v for env in flat)} if flat else {}
    return ", ".join(f"{name} {value}" for name, value in common.items() if isinstance(value, str | int | float))
