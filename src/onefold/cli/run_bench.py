"""`onefold bench`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from onefold.bench.cases import cases_for, fresh
from onefold.bench.compare import Row, Table, compare
from onefold.bench.timing import other_work
from onefold.cli.requests import Bench
from onefold.cli.tables import needed
from onefold.engine.device import device_named
from onefold.engine.distributed import world_here
from onefold.run import check_file, write_aside
from onefold.terminal import display, say

HEADINGS = ("step", "ms", "plain ms", "ratio", "floor ms", "of floor", "GB", "start-up s")


def run(request: Bench, out: Console) -> None:
    if world_here().size > 1:
        raise ValueError("bench: expected one process, which measures one device; run it without torchrun")
    for name, count, least in (("--steps", request.steps, 1), ("--batch", request.batch, 2)):
        if count is not None and count < least:
            raise ValueError(f"{name}: expected at least {least}, got {count}")
    device = device_named(request.device)
    file = file_named(request.out)
    every = cases_for(device, request.network, request.batch)
    steps = request.steps or (40 if device.type == "cuda" else 3)
    cases = [case for case in every if request.row is None or request.row.lower() in case.label.lower()]
    if not cases:
        names = "; ".join(dict.fromkeys(case.label for case in every))
        raise ValueError(f"--row: expected part of a row's name, got {request.row!r}; the rows are: {names}")
    fresh(cases[0])  # refuses an unknown network now
    if (note := other_work()) is not None:
        say(note)
    found: Table | None = None
    kept: Path | None = None
    try:
        with display() as shown:
            stage = shown.stage("bench")

            def told(label: str, done: int) -> None:
                stage.message(f"measuring {label}")
                stage.count(done, len(cases))

            for table in compare(cases, device, steps=steps, told=told):
                found = table
                kept = keep(table, device, file, whole=len(table.rows) == len(cases))
                stage.message(line_of(table.rows[-1]))
            stage.count(len(cases), len(cases))
    finally:  # show what has been measured, even if the rest failed
        if found is not None:
            show(found, device, out)
            if kept is not None:
                say(f"written: {kept}")


def keep(found: Table, device: torch.device, file: Path | None, *, whole: bool) -> Path | None:
    """Saves the rows so far, and returns where; until all are there, they do not replace an earlier record."""
    if file is None:
        return None
    part = file.with_name(f"{file.name}.part")
    write_json(file if whole else part, found.record(device))
    if whole:
        part.unlink(missing_ok=True)
    return file if whole else part


def line_of(row: Row) -> str:
    return f"{row.network} {row.step}: {row.ms:.2f} ms, plain {row.plain_ms:.1f} ms, {row.ratio:.2f} times as fast"


def show(found: Table, device: torch.device, out: Console) -> None:
    environment, rates = found.record(device)["environment"], found.rates
    threads = environment["threads"]
    hardware = environment.get("gpu") or f"{environment['processor']}, {threads} thread{'s' if threads > 1 else ''}"
    say(f"{hardware}; torch {environment['libraries']['torch']}; {found.precision}, the plain version in float32")
    say(f"large matrix products: {rates.flops / 1e12:.3g} TFLOP/s, large copies: {rates.bytes / 1e9:.3g} GB/s")
    for table in tables_of(found.rows, out.width):
        out.print(table)
    if any(row.ms < row.floor_ms for row in found.rows):
        say("some steps are faster than their floor: it assumes that activations are not cached, but these are")


def tables_of(rows: Sequence[Row], width: int) -> Iterator[Grid]:
    """One table for each network and batch size, named in its title: the rows' names are long enough without them."""
    for (network, batch), same in itertools.groupby(rows, key=lambda row: (row.network, row.batch)):
        title, found = f"{network}, batch size {batch}", list(same)
        narrow = [heading.replace(" ", "\n") for heading in HEADINGS]
        forms = [(HEADINGS, 1), (narrow, 1), (narrow, 0)]  # the widest one that fits is used
        tables = [table_of(title, found, headings, apart) for headings, apart in forms]
        yield next((table for table in tables if needed(table) <= width), tables[-1])


def table_of(title: str, rows: Sequence[Row], headings: Sequence[str], apart: int) -> Grid:
    table = Grid(title=Text(title), box=box.SIMPLE_HEAD, padding=(0, apart, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "step" else "right", no_wrap=heading != "step")
    for row in rows:
        numbers = [f"{row.ms:.2f}", f"{row.plain_ms:.1f}", f"{row.ratio:.2f}", f"{row.floor_ms:.2f}"]
        numbers += [f"{row.ms / row.floor_ms:.1f}", f"{row.memory_gb:.2f}", f"{row.start_up_s:.1f}"]
        table.add_row(Text(row.step), *numbers)
    return table


def file_named(name: str | None) -> Path | None:
    """The path of the JSON file; refused before anything is measured if it cannot be written."""
    if name is None:
        return None
    path = Path(name).expanduser()
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"--out: expected a file in an existing folder, got {path}")
    check_file(path, "--out", "json")
    return path


def write_json(path: Path, record: dict[str, Any]) -> None:
    write_aside(path, (json.dumps(record, indent=2) + "\n").encode())
