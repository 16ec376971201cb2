"""`onefold bench` and `onefold plan`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onefold.bench.cases import Case
from onefold.bench.compare import Row, row_of
from onefold.cli import main

Capture = pytest.CaptureFixture[str]


def test_bench_prints_a_table_and_writes_it(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "bench.json"
    words = ["bench", "--device", "cpu", "--network", "wrn10x1", "--batch", "2", "--steps", "1", "--out", str(out)]
    assert main(words) == 0
    told = capsys.readouterr()
    record = json.loads(out.read_text())
    assert [row["step"] for row in record["rows"]][2:4] == ["LatentBE-4", "LatentBE-4 + TDiv-SDiv"]
    for row in record["rows"]:
        assert f"{row['ms']:.2f}" in told.out
        assert f"{row['floor_ms']:.2f}" in told.out
    assert "large copies" in told.err
    assert f"wrn10x1 supervised, one: {record['rows'][0]['ms']:.2f} ms" in told.err
    assert not out.with_name("bench.json.part").exists()


@pytest.mark.parametrize(("load", "told"), [(0.1, False), (99.0, True)])
def test_bench_of_one_row(
    load: float, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    out = tmp_path / "bench.json"
    words = ["bench", "--device", "cpu", "--network", "wrn10x1", "--batch", "2", "--steps", "1", "--out", str(out)]
    assert main([*words, "--row", "Supervised"]) == 0
    assert [row["step"] for row in json.loads(out.read_text())["rows"]] == ["supervised, one"]
    assert ("the machine is busy (load 99.0" in capsys.readouterr().err) == told


def test_bench_keeps_what_it_has_measured(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_under_way(case: Case, *args: Any) -> Row:
        if case.label != "supervised, one":
            assert part.is_file(), "written before the next row is begun, which may end the process"
            raise RuntimeError("CUDA out of memory")
        return row_of(case, *args)

    monkeypatch.setattr("onefold.bench.compare.row_of", fails_under_way)
    out, part = tmp_path / "bench.json", tmp_path / "bench.json.part"
    earlier = json.dumps({"date": "then", "environment": {"libraries": {}}})
    out.write_text(earlier)
    words = ["bench", "--device", "cpu", "--network", "wrn10x1", "--batch", "2", "--steps", "1", "--out", str(out)]
    assert main(words) != 0
    said = capsys.readouterr()
    assert "wrn10x1, batch size 2" in said.out
    assert "supervised, one" in said.out
    assert "CUDA out of memory" in said.err
    assert f"written: {part}" in said.err
    assert [row["step"] for row in json.loads(part.read_text())["rows"]] == ["supervised, one"]
    assert out.read_text() == earlier


@pytest.mark.parametrize("growth", ["counted", "measured"])
def test_plan_prints_what_a_recipe_costs(
    growth: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["plan", "digits", "--network", "mlp", "--seconds", "0.02", "--growth", growth, "--out", "plan.json"]
    assert main(words) == 0
    told = capsys.readouterr()
    record = json.loads((tmp_path / "plan.json").read_text())
    teachers, student = record["phases"]
    assert "teachers 6 forward and 1 backward; student 6 forward and 5 backward passes" in told.out
    assert (teachers["work"]["steps"], teachers["work"]["runs"], student["work"]["runs"]) == (390, 4, 1)
    assert f"{1e3 * student['measured']['step']:,.2f}" in told.out
    assert [row["what"] for row in record["growth"]][:3] == ["as it is", "M = 2", "M = 8"]
    times = {"counted": "extrapolated from FLOPs", "measured": "measured"}[growth]
    assert f"for other settings, times are {times} and memory is estimated" in told.err
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"], "nothing was trained"


def test_plan_works_without_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--network", "wrn10x1", "--optim.batch-size", "4", "--seconds", "0.01", "--device", "cpu"]
    assert main(["plan", "cifar100", *small]) == 0
    told = capsys.readouterr()
    assert "random images instead of cifar100 (cifar100: data/" in told.err
    assert "train 45,000, val 5,000, test 10,000" in told.err
    assert "2,250,000 x 4" in told.out
