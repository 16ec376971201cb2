"""Writes the report on some folders to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from onefold.report.formats import comma_separated, markdown
from onefold.report.grids import grids
from onefold.report.latex import latex
from onefold.report.page import page, pictures_of, pictures_of_unfinished
from onefold.report.runs import gathered
from onefold.report.table import Section, sections
from onefold.report.unfinished import Unfinished
from onefold.report.words import sentences
from onefold.run import check_file, check_own_folder, write_aside

Format = Literal["html", "md", "csv", "latex"]
ENDINGS: dict[str, str] = {"html": "html", "md": "md", "csv": "csv", "latex": "tex"}


def report(
    paths: Iterable[Path | str],
    out: Path | str | None = None,
    *,
    title: str = "onefold report",
    introduction: Sequence[str] = (),
    format: Format = "html",
    figures: Path | str | None = None,
    tell: Callable[[str], None] | None = None,
) -> tuple[Path, list[Section]]:
    """Writes the report on all runs in the folders; returns its path and its sections.

    `format` is that of the file: an HTML page, or only the tables. `figures` is a folder for all pictures as SVG and
    PDF. `tell` is called with a sentence for each run that is left out or incomplete; all formats but CSV also contain
    these.
    """
    if format not in ENDINGS:
        raise ValueError(f"format: expected {', '.join(ENDINGS)}, got {format!r}")
    out = Path(f"report.{ENDINGS[format]}" if out is None else out).expanduser()
    if out.is_dir():
        raise ValueError(f"out: {out} is a folder; name a file in it, such as {out / f'report.{ENDINGS[format]}'}")
    check_file(out, kind=format)
    if figures is not None:
        check_own_folder(Path(figures).expanduser(), "figures")
    answers, notes, going = gathered(paths)
    if tell is not None:
        for note in notes:
            tell(note)
    found = sections(answers)
    tables = [(section, made := grids(section), sentences(section, made)) for section in found]
    if format == "html":
        content = page(tables, title, introduction, notes, going)
    elif format == "md":
        content = markdown(title, tables, notes)
    else:
        content = comma_separated(tables) if format == "csv" else latex(title, tables, notes)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_aside(out, content.encode())
    except OSError as error:
        raise ValueError(f"out: cannot write {out} ({error.strerror}); choose another file") from None
    if figures is not None:
        write_figures(found, going, Path(figures).expanduser())
    return out.resolve(), found


def write_figures(found: Sequence[Section], going: Sequence[Unfinished], folder: Path) -> list[Path]:
    """Saves all pictures, in a folder for each section and one for unfinished runs."""
    from onefold.report.pictures.render import save_picture

    places = [(folder / section.slug, picture) for section in found for picture in pictures_of(section)]
    places += [(folder / "unfinished", picture) for picture in pictures_of_unfinished(going)]
    try:
        return [path for place, picture in places for path in save_picture(picture, place)]
    except OSError as error:
        raise ValueError(f"figures: cannot write to {folder} ({error.strerror}); choose another folder") from None
