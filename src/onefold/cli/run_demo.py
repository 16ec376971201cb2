"""`onefold demo`."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from onefold.cli.requests import Demo
from onefold.cli.summary import source_of, summary
from onefold.cli.tables import section_table
from onefold.demo import demo
from onefold.recipes import digits
from onefold.run import check_folder
from onefold.terminal import display, say


def run(request: Demo, out: Console) -> None:
    seeds = request.seeds
    for name, count in {"--seeds": seeds, "--workers": request.workers}.items():
        if count is not None and count < 1:
            raise ValueError(f"{name}: expected at least 1, got {count}")
    check_folder(Path(request.out).expanduser())
    say(summary(digits(), source_of(digits()), student=True))
    say(f"here: {digits().members} teachers and 3 students, with {seeds} seed{'' if seeds == 1 else 's'}")
    begin = time.monotonic()
    with display() as shown:
        page, sections = demo(request.out, seeds=seeds, workers=request.workers, stage=shown.stage)
    for section in sections:
        out.print(section_table(section, out.width))
    say("one seed" if seeds == 1 else f"mean ± standard deviation; {seeds} seeds")
    say(f"{time.monotonic() - begin:.0f} s in all; the table shows what came out")
    say("next: onefold train cifar10 --download, and then onefold distill; the page has reliability diagrams:")
    out.print(str(page), markup=False, emoji=False, highlight=False, soft_wrap=True)
