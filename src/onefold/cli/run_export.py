"""`onefold export`: a finished run's network as a file for serving."""

from __future__ import annotations

from rich.console import Console

from onefold.cli.requests import Export
from onefold.export import export
from onefold.export.hub import NEW
from onefold.terminal import propose, say


def run(request: Export, out: Console) -> None:
    written = export(
        request.run,
        request.format,
        request.out,
        calibrated=request.calibrated,
        batch=request.batch,
        network=request.network or "",
    )
    for note in written.notes:
        say(note)
    if request.format == "hub" and not (written.path / NEW).exists():  # not if an edited card still has to be merged
        propose(["hf", "upload", "USER/NAME", str(written.path), "."])
    out.print(str(written.path), markup=False, emoji=False, highlight=False, soft_wrap=True)
