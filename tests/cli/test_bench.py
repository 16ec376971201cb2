"""The table of `onefold bench`."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from onefold.bench.compare import Row
from onefold.cli.run_bench import tables_of

STEPS = ("supervised, one", "4 teachers at once, a round", "LatentBE-4 + TDiv-SDiv")
LONGEST = "4 of LatentBE-4 + TDiv-SDiv at once, a round"


def row(network: str, step: str) -> Row:
    return Row(network, step, 128, 737.49, 1061.8, 603.61, 1.0, 1.0, 22, 0.1, 1.28, 11.3)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_networks_stand_in_titles_and_steps_in_a_line_or_two(width: int) -> None:
    rows = [row(network, step) for network in ("wrn28x1", "wrn28x4") for step in (*STEPS, LONGEST)]
    with io.StringIO() as file:
        for table in tables_of(rows, width):
            Console(file=file, width=width).print(table)
        lines = file.getvalue().splitlines()
    assert [line.strip() for line in lines if "wrn" in line] == ["wrn28x1, batch size 128", "wrn28x4, batch size 128"]
    assert max(map(len, lines)) <= width
    numbers = [line for line in lines if "737.49" in line]
    assert len(numbers) == 8
    assert all("1061.8" in line and "603.61" in line and "11.3" in line for line in numbers)
    for step in STEPS:
        assert sum(line.startswith(f" {step} ") for line in numbers) == 2
    broken = [line for line in lines if line.strip() and line.strip() in LONGEST]  # the second half of its name
    assert len(broken) == (2 if width < 100 else 0)
