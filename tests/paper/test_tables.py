"""The paper's numbers: all of them, read as they stand."""

from __future__ import annotations

import collections
import csv
from pathlib import Path

import onefold.paper
from onefold.paper import TABLES, entries, found


def test_every_number_is_there_once() -> None:
    with (Path(onefold.paper.__file__).parent / "tables.csv").open() as file:
        lines = list(csv.reader(file))[1:]
    assert len(entries()) == len(lines) == 466
    for entry, line in zip(entries(), lines, strict=True):
        assert [entry.table, entry.dataset, entry.network, entry.teacher, entry.forward_passes] == line[:5]
        assert [entry.method, entry.metric, entry.mean] == [*line[5:7], float(line[7])]
        assert entry.std == (float(line[8]) if line[8] else None)
    places = [(e.table, e.dataset, e.network, e.teacher, e.forward_passes, e.method, e.metric) for e in entries()]
    assert len(set(places)) == len(places)
    assert {entry.table for entry in entries()} == set(TABLES)


def test_numbers_look_like_what_they_are() -> None:
    for entry in entries():
        low, high = {"ACC": (45, 100), "ECE": (0, 0.4), "cECE": (0, 0.1)}.get(entry.metric, (0, 7))
        assert low < entry.mean < high, entry
        assert entry.std is None or 0 <= entry.std < 0.6


def test_a_row_by_its_name() -> None:
    ours = found("CIFAR-10", "WRN28x1", "KD + LatentBE + TDiv-SDiv", "DE-8")
    assert {name: (entry.mean, entry.std) for name, entry in ours.items()} == {
        "ACC": (94.19, 0.11),
        "NLL": (0.200, 0.004),
        "ECE": (0.027, 0.002),
        "cNLL": (0.178, 0.002),
        "cECE": (0.006, 0.002),
    }
    assert found("CIFAR-100", "WRN28x4", "KD", "DE-4")["NLL"].mean == 1.038
    assert set(found("CIFAR-100", "WRN28x4", "KD", "DE-4", "costs")) == {
        "ACC",
        "NLL",
        "train_hours_rtx3090",
        "inference_ms_per_image_rtx3090",
    }
    assert found("CIFAR-10", "WRN28x1", "Single KD")["ACC"].std == 0.09
    assert found("CIFAR-10", "WRN28x1", "nothing") == {}


def test_rows_have_every_metric_of_their_table() -> None:
    rows = collections.defaultdict(set)
    for e in entries():
        rows[e.table, e.dataset, e.network, e.teacher, e.forward_passes, e.method].add(e.metric)
    for place, metrics in rows.items():
        expected = {"corrupted": 3, "costs": 4}.get(place[0], 5)
        assert len(metrics) == expected, place
