"""Tables that fit the terminal they are shown on."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console
from rich.table import Table

from onefold.cli.tables import at_slashes, deviations, grid_table, metrics_table, section_table
from onefold.metrics import Reliability
from onefold.report import Answers, Grid, Number, Row, Section

NONE = Reliability(torch.zeros(15), torch.zeros(15), torch.zeros(15))
METRICS = {"acc": 0.9806, "nll": 0.0722, "ece": 0.0218, "cnll": 0.0643, "cece": 0.0138, "temperature": 0.763}


def shown(table: Table, width: int) -> list[str]:
    """The lines, of which none is longer than the terminal."""
    with io.StringIO() as file:
        Console(width=width, file=file).print(table)
        lines = file.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    return lines


def row(label: str, *, networks: int) -> Row:
    answers = Answers(label, "student", "kd", "none", 4, {}, 0, (Path(),), METRICS, NONE, None, 1197, {})
    values = {key: [value + 0.01 * k for k in range(networks)] for key, value in METRICS.items()}
    return Row(label, (answers,) * networks, values | {"ms": [0.016]}, NONE, None)


def section(*counts: int) -> Section:
    labels = ("single network", "ensemble of 4", "KD", "LatentBE + TDiv-SDiv")
    return Section("digits", "wrn10x1", tuple(row(n, networks=c) for n, c in zip(labels, counts, strict=False)))


@pytest.mark.parametrize("width", [80, 100, 116, 120, 122, 140])
def test_names_of_networks_are_in_one_line_and_deviations_where_there_is_room(width: int) -> None:
    lines = shown(section_table(section(4, 1, 1, 1), width), width)
    assert sum(line.startswith(" LatentBE + TDiv-SDiv ") for line in lines) == 1
    assert any("99.56 ± 1.29" in line for line in lines) == (width >= 116)
    assert any("±1.29" in line for line in lines) == (width < 116)
    assert not any("…" in line for line in lines)


def test_a_table_with_less_to_show_has_its_deviations_beside_the_means_in_less_room() -> None:
    few = Grid("corruption", "Corrupted", ("ACC % ↑", "NLL ↓"), (("KD", (Number(78.9, 0.5, 2), Number(0.9, 0.1))),))
    assert any("78.90 ± 0.50   0.9000 ± 0.1000" in line for line in shown(grid_table(few, 80), 80))


def test_rows_that_share_a_network_stand_under_its_name() -> None:
    numbers = (Number(0.5),)
    rows = (("BE: member 0", numbers), ("BE: averaged", numbers), ("KD: svhn", numbers), ("alone", numbers))
    lines = shown(grid_table(Grid("health", "Check", ("NLL ↓",), rows), 80, "digits, mlp"), 80)
    assert lines[0].strip() == "Check, digits, mlp"
    assert [line.rstrip() for line in lines[4:-1]] == [
        " BE",
        "   member 0   0.5000",
        "   averaged   0.5000",
        " KD: svhn     0.5000",
        " alone        0.5000",
    ]


def test_deviations_say_what_they_are_over() -> None:
    said = "± is the standard deviation over the networks of a row: "
    assert deviations(section(12, 3, 3, 3)) == said + "12 in single network, 3 in the others"
    assert deviations(section(4, 1, 1, 1)) == said + "4 in single network, 1 in the others"
    assert deviations(section(2, 2)) == said + "2 in each"
    assert deviations(section(1, 1)) == ""


def test_the_folder_of_long_names_is_told_once() -> None:
    names = [f"runs/demo/seed-0/{name}" for name in ("teachers DE-1", "teachers", "latentbe-tdiv-sdiv")]
    rows = [(name, METRICS) for name in names]
    wide = shown(metrics_table(rows, 120), 120)
    assert any(line.startswith(f" {names[2]} ") for line in wide)
    lines = shown(metrics_table(rows, 80), 80)
    assert lines[0].strip() == "in runs/demo/seed-0"
    assert [line.split("  ")[0].strip() for line in lines[4:-1]] == ["teachers DE-1", "teachers", "latentbe-tdiv-sdiv"]


def test_one_long_name_is_broken_at_its_folders() -> None:
    lines = shown(metrics_table([("runs/demo/seed-0/latentbe-tdiv-sdiv", METRICS)], 80), 80)
    assert [line.split("  ")[0].strip() for line in lines[3:-1]] == ["runs/demo/seed-0/", "latentbe-tdiv-sdiv"]


@pytest.mark.parametrize("names", [("/a/" + "b" * 40, "/c/" + "d" * 40), ("x/" + "y" * 40, "/z/" + "y" * 40)])
def test_long_names_that_share_no_folder_are_there_as_they_are(names: tuple[str, str]) -> None:
    told = "".join(shown(metrics_table([(name, METRICS) for name in names], 80), 80))
    assert "in /" not in told
    assert all(name[:2] in told for name in names)


def test_paths_end_lines_between_folders() -> None:
    assert at_slashes("runs/cifar10/seed-0/kd", 20) == "runs/cifar10/seed-0/\nkd"
    assert at_slashes("runs/cifar10/seed-0/kd", 22) == "runs/cifar10/seed-0/kd"
    assert at_slashes("/a/" + "b" * 30, 12) == "/a/\n" + "b" * 30
    assert at_slashes("runs/cifar10", 3) == "runs/cifar10"
