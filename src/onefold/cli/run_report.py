"""`onefold evaluate` and `onefold report`: results of finished runs, without data or GPU."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from onefold.cli.requests import Evaluate, Report
from onefold.cli.tables import deviations, section_table
from onefold.report import report
from onefold.terminal import say, say_first


def run(request: Evaluate | Report, out: Console) -> None:
    evaluate(request, out) if isinstance(request, Evaluate) else write_report(request, out)


def evaluate(request: Evaluate, out: Console) -> None:
    from onefold.cli import run_measure  # slow to import, and not needed for a report

    for folder in request.runs:
        if not Path(folder).expanduser().is_dir():
            raise ValueError(
                f"{folder}: there is no such folder; give a run folder, a folder of teachers, or one that contains runs"
            )
    run_measure.run(request, out)


def write_report(request: Report, out: Console) -> None:
    notes: list[str] = []
    page, sections = report(
        request.runs, request.out, format=request.format, figures=request.figures, tell=notes.append
    )
    for section in sections:
        out.print(section_table(section, out.width))
        if said := deviations(section):
            say(said)
    say_first(notes, "what is left out")
    if request.figures is not None:
        say(f"figures: {Path(request.figures).expanduser()}")
    out.print(str(page), markup=False, emoji=False, highlight=False, soft_wrap=True)
