"""`onefold demo`."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from onefold.cli.requests import Demo
from onefold.cli.summary import source_of
from onefold.cli.tables import deviations, section_table
from onefold.data import Source, rows
from onefold.demo import demo
from onefold.demo.tasks import STUDENTS
from onefold.engine import build_network
from onefold.engine.distributed import world_here
from onefold.recipe import Recipe
from onefold.recipes import digits
from onefold.report import Section, grids, sentences
from onefold.run import check_own_folder
from onefold.terminal import display, propose, say


def run(request: Demo, out: Console) -> None:
    if world_here().size > 1:
        raise ValueError("demo: expected one process, which starts workers of its own; run it without torchrun")
    seeds = request.seeds
    for name, count in {"--seeds": seeds, "--workers": request.workers}.items():
        if count is not None and count < 1:
            raise ValueError(f"{name}: expected at least 1, got {count}")
    check_own_folder(Path(request.out).expanduser())
    say(head(digits(), source_of(digits()), seeds))
    begin = time.monotonic()
    with display() as shown:
        page, sections = demo(request.out, seeds=seeds, workers=request.workers, stage=shown.stage)
    for section in sections:
        out.print(section_table(section, out.width))
        say(repeated(seeds, section))
        for sentence in telling(section):
            say(sentence)
    say(f"{time.monotonic() - begin:.0f} s in total")
    propose(["onefold", "train", "cifar10", "--download"])
    say(
        "This trains teachers on larger images, on a GPU if there is one, and then shows the command for their "
        "student. The demo's results as a page, with all conclusions, reliability diagrams and learning curves:"
    )
    out.print(str(page), markup=False, emoji=False, highlight=False, soft_wrap=True)


def head(recipe: Recipe, source: Source, seeds: int) -> str:
    """The data, the sizes of the splits, and what will be trained."""
    net = build_network(recipe.network, len(source.classes), source.statistics, source.image_size)
    parameters = sum(p.numel() for p in net.parameters())
    told = dict(rows(source))
    sizes = ", ".join(f"{split} {told[split].partition(' ')[0]}" for split in source.splits)
    return (
        f"data      {source.name}, {told['images']}, {len(source.classes)} classes\n"
        f"sizes     {sizes}\n"
        f"training  {seeds} seed{'s' * (seeds > 1)} of {recipe.members} teachers and {len(STUDENTS)} students: "
        f"{recipe.network}, {parameters:,} parameters"
    )


def repeated(seeds: int, section: Section) -> str:
    """The number of seeds, and what deviations are over: single networks have some even with one seed."""
    often = f"{seeds} seeds" if seeds > 1 else "one seed: differences between students may be noise"
    return f"{often}; {deviations(section)}"


def telling(section: Section) -> list[str]:
    """The sentences of the page about the last student, which is our method, and about the first, its baseline."""
    every, students = sentences(section, grids(section)), section.of_kind("student")
    chosen = []
    for student in (students[-1], students[0]):
        about = (f"{student.label} ", f"{student.label}:")
        chosen += [sentence for sentence in every if sentence.startswith(about)][:1]
    return chosen or every[:2]
