"""What measurements of several networks become: none are mixed that are of different things."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onefold.cli.measured import along
from onefold.recipe import Recipe
from onefold.recipes import cifar10
from onefold.report import Grid, collect, grids, sections, sentences
from onefold.report.grid import PLUS_MINUS
from onefold.report.pictures import pictures
from onefold.run import RunFolder

WriteRun = Callable[..., RunFolder]


def edit(run: RunFolder, name: str, **changes: Any) -> dict[str, Any]:
    path = run.path / "measurements" / f"{name}.json"
    content: dict[str, Any] = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(content))
    return content


def seeds(write: WriteRun, root: Path, count: int = 2) -> list[RunFolder]:
    recipe = cifar10()
    return [write(root / str(seed), seeded(recipe, seed), seed) for seed in range(count)]


def seeded(recipe: Recipe, seed: int) -> Recipe:
    return dataclasses.replace(recipe, seed=seed)


def tables(root: Path) -> dict[str, Grid]:
    (section,) = sections(collect([root])[0])
    return {grid.name: grid for grid in grids(section)}


def test_health_checks_of_different_splits_are_not_averaged(tmp_path: Path, write: WriteRun) -> None:
    """A run ends with one on the validation split; `onefold evaluate --health` makes one on the test split."""
    first, second = seeds(write, tmp_path)
    one = {"acc": 0.5, "nll": 3.0, "ece": 0.2}
    edit(first, "health", split="val", collapsed=one, warning="hurts on val")
    edit(second, "health", split="test", collapsed=one | {"acc": 0.7}, warning="hurts on test")
    health = tables(tmp_path)["health"]
    averaged = dict(health.rows)["LatentBE + TDiv-SDiv: averaged network"]
    assert averaged[0].mean == pytest.approx(70)
    assert averaged[0].deviation is None
    assert health.caption.endswith("on the test split.")
    (section,) = sections(collect([tmp_path])[0])
    said = sentences(section, list(tables(tmp_path).values()))
    assert [sentence for sentence in said if "hurts" in sentence] == ["LatentBE + TDiv-SDiv: hurts on test"]


def test_published_and_generated_images_are_not_averaged(tmp_path: Path, write: WriteRun) -> None:
    first, second = seeds(write, tmp_path)
    edit(first, "corruption", source="generated, seed 0")
    content = edit(second, "corruption")
    found = tables(tmp_path)["corruption"]
    mean = statistics.fmean(r["acc"] for r in content["rows"] if r["corruption"] != "speckle_noise")
    (cells,) = [cells for _, cells in found.rows]
    assert cells[0].mean == pytest.approx(100 * mean)
    assert cells[0].deviation is None
    assert "CIFAR-10-C (published)" in found.caption
    assert "generated" not in found.caption


def test_numbers_of_images_made_here_are_shown_beside_the_papers_but_not_counted(
    tmp_path: Path, write: WriteRun
) -> None:
    (run,) = seeds(write, tmp_path, 1)
    counted = []
    for source in ("CIFAR-10-C (published)", "generated, seed 0"):
        edit(run, "corruption", source=source)
        found = tables(tmp_path)
        assert dict(found["corruption"].rows)["LatentBE + TDiv-SDiv"][1].papers == f"1.237{PLUS_MINUS}0.024"
        assert ("ours were generated here" in found["corruption"].caption) == source.startswith("generated")
        (section,) = sections(collect([tmp_path])[0])
        (said,) = [s for s in sentences(section, list(found.values())) if s.startswith("Of ")]
        counted.append(int(said.split()[2]))
    assert counted[0] == counted[1] + 3  # ACC, NLL and ECE


def test_every_corruption_has_a_row_of_its_own(tmp_path: Path, write: WriteRun) -> None:
    runs = seeds(write, tmp_path)
    each = [edit(run, "corruption")["rows"] for run in runs]
    found = tables(tmp_path)
    names = ["gaussian_noise", "fog", "jpeg_compression", "speckle_noise (extra)"]
    for key, scale in (("acc", 100), ("nll", 1), ("ece", 1)):
        grid = found[f"corruption-{key}"]
        assert [label for label, _ in grid.rows] == names
        assert grid.headings == ("LatentBE + TDiv-SDiv",)
        assert grid.folded
        (cell,) = dict(grid.rows)["fog"]
        means = [scale * statistics.fmean(r[key] for r in rows if r["corruption"] == "fog") for rows in each]
        assert cell.mean == pytest.approx(statistics.fmean(means))
        assert cell.deviation == pytest.approx(statistics.stdev(means))


def test_answers_that_were_not_finite_leave_a_gap(tmp_path: Path, write: WriteRun) -> None:
    """Far from the members a network may answer anything; the rest of the line is good."""
    (run,) = seeds(write, tmp_path, 1)
    content = edit(run, "subspace")
    for curve in content["curves"]:
        curve["error"][0] = curve["nll"][0] = None
    content["plane"]["nll"][0][0] = None
    content["average"]["test"] = {"error": None, "nll": None}
    edit(run, "subspace", **content)
    answers, notes = collect([tmp_path])
    assert notes == []
    made = {picture.name: picture for picture in pictures(sections(answers)[0])}
    (train,) = [panel for panel in made["subspace"].panels if panel.title == "train error, %"]
    values = [100 * v for v in content["curves"][0]["error"][1:]]
    assert f"between {min(values):.4g} and {max(values):.4g}, 19 at the average" in train.description
    (test,) = [panel for panel in made["subspace"].panels if panel.title == "test NLL"]
    assert "at the average" not in test.description
    assert "plane-0" in made


def test_the_average_is_marked_however_many_members_there_are(tmp_path: Path, write: WriteRun) -> None:
    from onefold.report.pictures.render import panel_svg

    (run,) = seeds(write, tmp_path, 1)
    drawn = {}
    for t in (0.5, None):
        content = edit(run, "subspace")
        edit(run, "subspace", average=content["average"] | {"t": t})
        (picture,) = [p for p in pictures(sections(collect([tmp_path])[0])[0]) if p.name == "subspace"]
        assert ("it is hollow" in picture.caption) == (t is None)
        assert all("at the average" in panel.description for panel in picture.panels)
        drawn[t] = panel_svg(picture.panels[0], "a")
    assert drawn[0.5] != drawn[None]
    del content["average"]["train"]
    edit(run, "subspace", average=content["average"])
    (picture,) = [p for p in pictures(sections(collect([tmp_path])[0])[0]) if p.name == "subspace"]
    assert len(panel_svg(picture.panels[0], "a")) < len(drawn[None])  # without a star


@pytest.mark.parametrize("images", [60, None])
def test_a_line_says_how_many_images_it_was_measured_on(images: int | None, tmp_path: Path, write: WriteRun) -> None:
    for run in seeds(write, tmp_path, 2):
        if images is not None:
            edit(run, "subspace", count={"train": images, "test": images, "plane": images})
    (section,) = sections(collect([tmp_path])[0])
    made = {picture.name: picture.caption for picture in pictures(section)}
    told = "Measured on 60 training and 60 test images." if images else "average of all members."
    assert made["subspace"].endswith(told)
    assert made["subspace-reestimated"].endswith(told)
    assert made["plane-0"].endswith("Measured on 60 test images." if images else "last colour of the scale.")
    examples = section.rows[0].examples
    used = f"60 of {examples:,} " if images else ""
    assert along(section).title == f"NLL on the line through two members, on {used}test images"


def test_sets_of_other_images_stand_in_one_order(tmp_path: Path, write: WriteRun) -> None:
    """A network may have been asked about them in any order, and not about all."""
    recipe = cifar10()
    first = write(tmp_path / "a", recipe, 0)
    plain = dataclasses.replace(recipe, distill=dataclasses.replace(recipe.distill, method="kd", perturbation="none"))
    second = write(tmp_path / "b", plain, 0)
    every = edit(second, "ood")["sets"]
    edit(second, "ood", sets=every[::-1])
    names = [label.rpartition(": ")[2] for label, _ in tables(tmp_path)["ood-all"].rows]
    assert len(names) == 4
    assert names[:2] == names[2:]
    edit(second, "ood", sets=every[:1])
    assert len(tables(tmp_path)["ood-all"].rows) == 3
    brief = tables(tmp_path)["ood"]
    assert brief.headings == ("svhn ↑", "lsun ↑")
    rows = {label: [cell.mean for cell in cells] for label, cells in brief.rows}
    scores = [each["scores"]["entropy"]["auroc"] for each in edit(first, "ood")["sets"]]
    assert rows == {"LatentBE + TDiv-SDiv": scores, "KD": [every[0]["scores"]["entropy"]["auroc"], None]}
