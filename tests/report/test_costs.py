"""Tables of times."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from onefold.recipe import DistillRecipe
from onefold.recipes import cifar100, digits
from onefold.report import Grid, Section, collect, grids, sections, sentences
from onefold.report.costs import timed
from onefold.run import RunFolder

WriteRun = Callable[..., RunFolder]


@pytest.fixture(scope="module")
def tables(everything: Path) -> dict[str, Grid]:
    return {grid.name: grid for grid in grids(only(everything))}


def only(folder: Path) -> Section:
    (section,) = sections(collect([folder])[0])
    return section


def of_costs(section: Section) -> list[Grid]:
    return [grid for grid in grids(section) if grid.name.startswith("costs")]


def measure(folder: Path, *times: tuple[str, int, float], device: str = "x") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    inference = [{"what": what, "batch": batch, "ms_per_image": ms} for what, batch, ms in times]
    content = {"version": 1, "device": device, "train_seconds": 30.0, "inference": inference}
    (folder / "costs.json").write_text(json.dumps(content))


def test_run_time(tables: dict[str, Grid]) -> None:
    rows = dict(tables["costs"].rows)
    assert tables["costs"].headings == ("training, h", "ms/image, batch 1", "µs/image, batch 128", "passes")
    assert [cell.mean for cell in rows["ensemble of 4"]] == pytest.approx([8.0, 3.69, 410, 4])
    assert [cell.mean for cell in rows["LatentBE"]] == pytest.approx([2.0, 0.99, 110, 1])
    assert [cell.mean for cell in rows["BE"]] == pytest.approx([2.0, 2.7, 300, 4])


def test_hours_stand_beside_the_papers_however_short_they_are(tmp_path: Path, write: WriteRun) -> None:
    run = write(tmp_path / "a", cifar100(), 0, measured=False)
    run.write_json("result.json", {"seconds": 1260.0, "metrics": {}, "temperature": 1.0})
    (costs,) = of_costs(only(tmp_path))
    assert costs.headings[0] == "training, h"
    ((_, cells),) = costs.rows
    assert (cells[0].text, cells[0].papers, cells[0].difference) == ("0.350", "5.3", "15.1 times as fast")


def test_a_single_network_may_have_been_timed_with_the_ensemble(tmp_path: Path, write: WriteRun) -> None:
    for m in range(2):
        run = write(tmp_path / f"teacher-{m}", digits(), 0, member=m, measured=False)
        run.write_json("result.json", {"seconds": 30.0, "metrics": {}, "temperature": 1.0})
    measure(tmp_path / "measurements" / "first-2", ("single", 8, 0.2), ("ensemble", 8, 0.4))
    (costs,) = of_costs(only(tmp_path))
    assert costs.headings == ("training, min", "µs/image, batch 8", "passes")
    assert [[cell.mean for cell in cells] for _, cells in costs.rows] == [[0.5, 200, 1], [1.0, 400, 2]]


@pytest.mark.parametrize(
    ("value", "scale", "text"),
    [(4.3061, 1, "4.31"), (17.223, 1, "17.2"), (104.27, 1, "104"), (0.0269, 1000, "26.9"), (0.0573, 1, "0.0573")],
)
def test_times_have_three_figures(value: float, scale: float, text: str) -> None:
    assert timed([value], scale, None).text == text
    assert timed([], scale, None).text == "–"


def test_few_times_of_images_are_a_table_of_their_own(tmp_path: Path, write: WriteRun) -> None:
    for method in ("kd", "aekd", "latentbe"):
        recipe = dataclasses.replace(cifar100(), distill=DistillRecipe(method, "none"))
        write(tmp_path / method, recipe, 0, measured=False)
    measure(tmp_path / "latentbe" / "measurements", ("collapsed", 1, 2.5), ("collapsed", 64, 0.05))
    trained, asked = of_costs(only(tmp_path))
    assert (trained.title, asked.title) == ("Training time", "Inference time")
    assert [label for label, _ in trained.rows] == ["KD", "AE-KD", "LatentBE"]
    assert asked.headings == ("ms/image, batch 1", "µs/image, batch 64", "passes")
    assert [(label, [cell.text for cell in cells]) for label, cells in asked.rows] == [
        ("LatentBE", ["2.50", "50.0", "1"])
    ]
    measure(tmp_path / "kd" / "measurements", ("single", 1, 2.0))
    (together,) = of_costs(only(tmp_path))
    assert together.headings == ("training, h", "ms/image, batch 1", "µs/image, batch 64", "passes")
    rows = {label: [cell.text for cell in cells][1:] for label, cells in together.rows}
    assert rows == {"KD": ["2.00", "–", "1"], "AE-KD": ["–", "–", "1"], "LatentBE": ["2.50", "50.0", "1"]}


def test_times_on_different_devices_are_neither_averaged_nor_compared(tmp_path: Path, write: WriteRun) -> None:
    for m in range(2):
        write(tmp_path / "teachers" / f"teacher-{m}", digits(), 0, member=m, measured=False)
    measure(tmp_path / "teachers" / "measurements" / "first-2", ("ensemble", 8, 4.0), device="old")
    for seed, (method, device, ms) in enumerate((("kd", "old", 3.0), ("kd", "new", 0.2), ("latentbe", "new", 0.1))):
        distill = DistillRecipe(method, "none")
        recipe = dataclasses.replace(digits(), seed=seed, members=2, distill=distill)
        run = write(tmp_path / str(seed), recipe, seed, measured=False)
        run.write_json("env.json", run.read_json("env.json") | {"gpu": device})
        measure(run.path / "measurements", ("single", 8, ms), device=device)
    section = only(tmp_path)
    made = grids(section)
    (costs,) = (grid for grid in made if grid.name == "costs")
    assert costs.headings[1:-1] == ("ms/image, batch 8 on old", "µs/image, batch 8 on new")
    assert {label: [cell.text for cell in cells[1:-1]] for label, cells in costs.rows} == {
        "single network": ["3.00", "150"],  # as KD's and LatentBE's networks, which are alike
        "ensemble of 2": ["4.00", "–"],
        "KD": ["3.00", "200"],
        "LatentBE": ["–", "100"],
    }
    assert "Trained on A processor; old; new: training times compare only on the same device." in costs.caption
    said = {sentence.split()[0]: sentence for sentence in sentences(section, made)}
    assert "3.000 ms per image vs. 4.000" in said["KD"]
    assert "ms per image" not in said["LatentBE"]
