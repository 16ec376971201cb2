"""RESULTS.md and the README say what results/ holds, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
import statistics
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from onefold.paper import found
from onefold.recipe import DistillRecipe, Recipe, to_dict
from onefold.recipes import cifar10, cifar100
from onefold.report.grid import MINUS, PLUS_MINUS, SIGMA
from onefold.run import RunFolder

Script = Callable[[str], ModuleType]
ROOT = Path(__file__).parent.parent.parent
README = "# A title\n\n<!-- results -->\nold\n<!-- /results -->\n\nThe rest.\n"
PICTURE = re.compile(r"!\[[^\]]*\]\((\S+)\)")


def test_what_is_committed_is_what_the_command_writes(script: Script) -> None:
    """If this fails, run `python dev/results.py` and commit what it has written."""
    results = script("results")
    kept = results.read(ROOT / "results")
    page, readme = (ROOT / "RESULTS.md").read_text(), (ROOT / "README.md").read_text()
    assert results.page(kept) == page
    assert results.with_block(readme, kept) == readme
    for path in PICTURE.findall(page):
        assert ET.fromstring((ROOT / path).read_text()).tag.endswith("svg")


def test_what_is_kept_is_small_and_has_no_weights() -> None:
    for path in (ROOT / "results").rglob("*"):
        assert path.suffix in ("", ".json", ".jsonl", ".npz", ".svg", ".md")
        assert path.is_dir() or path.stat().st_size < (1_000_000 if path.suffix == ".npz" else 3_000_000)


def write_run(folder: Path, recipe: Recipe, *, teacher: int | None = None, epoch: int | None = None) -> RunFolder:
    """A run as it is kept; with an `epoch`, one that has only come so far."""
    rng = np.random.default_rng([recipe.seed, len(folder.name), 0 if teacher is None else 1 + teacher])
    about: dict[str, Any] = {"kind": "student", "method": recipe.distill.method, "members": recipe.members}
    about |= {"perturbation": recipe.distill.perturbation}
    if teacher is not None:
        about = {"kind": "teacher", "member": teacher, "method": "supervised", "perturbation": "none"}
    run = RunFolder(folder)
    run.begin(to_dict(recipe), about | {"steps": 200 * 352}, {"gpu": "A GPU"})
    for e in range(1, (200 if epoch is None else epoch) + 1, 20):
        run.log({"kind": "train", "step": 352 * e, "epoch": e, "loss": 1 / e, "seconds": 3.0 * e})
        run.log({"kind": "val", "step": 352 * e, "epoch": e, "acc": 0.9, "nll": 0.3, "ece": 0.02})
    if epoch is not None:
        run.log({"kind": "train", "step": 352 * epoch, "epoch": epoch, "loss": 0.1, "seconds": 3.0 * epoch})
        return run
    for split, rows in (("val", 100), ("test", 200)):
        labels = np.random.default_rng(rows).integers(0, 10, rows)
        z = rng.normal(size=(rows, 10)) + 4 * np.eye(10)[labels]
        run.write_predictions(split, labels, (z - np.log(np.exp(z).sum(1, keepdims=True))).astype(np.float32))
    run.write_json("result.json", {"seconds": 600.0, "metrics": {}, "temperature": 1.0})
    return run


def student(recipe: Recipe, method: str, perturbation: str = "none", seed: int = 0, members: int = 4) -> Recipe:
    distill = DistillRecipe(method, perturbation, recipe.distill.alpha, recipe.distill.temperature)
    return dataclasses.replace(recipe, seed=seed, members=members, distill=distill)


def measure(run: Path, name: str, content: dict[str, Any]) -> None:
    (run / "measurements").mkdir(exist_ok=True)
    (run / "measurements" / f"{name}.json").write_text(json.dumps({"version": 1} | content))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Of CIFAR-10 four teachers, KD with two seeds, LatentBE under way; of CIFAR-100 a teacher that is under way."""
    (tmp_path / "README.md").write_text(README)
    home, teachers = tmp_path / "results" / "cifar10", dataclasses.replace(cifar10(), members=8)
    for m in range(4):
        write_run(home / "teachers" / f"teacher-{m}", teachers, teacher=m)
    for seed in range(2):
        run = write_run(home / f"seed-{seed}" / "kd-of-4", student(cifar10(), "kd", seed=seed)).path
        rows = [{"corruption": "fog", "severity": s, "acc": 0.7, "nll": 1.4 + seed, "ece": 0.2} for s in range(1, 6)]
        measure(run, "corruption", {"source": "generated, seed 0", "rows": rows})
        times = [{"what": "single", "batch": 128, "ms_per_image": 0.01}]
        measure(run, "costs", {"device": "A GPU", "train_seconds": 600.0, "inference": times})
    write_run(home / "seed-0" / "latentbe-tdiv-sdiv-of-4", student(cifar10(), "latentbe", "tdiv-sdiv"), epoch=120)
    bare = write_run(home / "seed-1" / "be-confods-of-4", student(cifar10(), "be", "confods", seed=1))
    bare.predictions_file("test").unlink()
    write_run(home / "seed-0" / "latentbe-of-2", student(cifar10(), "latentbe", members=2))
    hundred = tmp_path / "results" / "cifar100" / "teachers" / "teacher-0"
    write_run(hundred, dataclasses.replace(cifar100(), members=4), teacher=0, epoch=7)
    return tmp_path


def nll_of(run: Path) -> float:
    labels, logits = RunFolder(run).predictions("test") or pytest.fail("no predictions")
    z = logits.astype(np.float64)
    return float(-(z - np.log(np.exp(z).sum(1, keepdims=True)))[np.arange(len(labels)), labels].mean())


def told(text: str) -> str:
    """As it is written, with what belongs together on one line, and a minus."""
    text = text.replace(" ± ", PLUS_MINUS).replace("± ", PLUS_MINUS.lstrip()).replace(" σ", SIGMA)
    return re.sub(r"(?<=[ *])-", MINUS, text)


def lines_of(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the table below a heading, by their first cell."""
    lines = page.split(heading)[1].split("\n#")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {row[0]: row[1:] for row in cells}


def test_rows_are_numbers_or_say_what_is_missing(root: Path, script: Script) -> None:
    assert script("results").main(["--root", str(root)]) == 0
    page = (root / "RESULTS.md").read_text()
    ten, hundred = page.split("## CIFAR-100, WRN28x4")
    rows = lines_of(ten, "### Students of DE-4")
    assert list(rows)[2:] == [
        "KD",
        "LatentBE",
        "LatentBE + TDiv-SDiv",
        "AE-KD",
        "Proxy-EnD²",
        "LatentBE + ConfODS",
        "BE",
        "BE + ConfODS",
        "BE + TDiv-SDiv",
    ]
    each = [nll_of(root / "results" / "cifar10" / f"seed-{seed}" / "kd-of-4") for seed in range(2)]
    mean, deviation = statistics.fmean(each), statistics.stdev(each)
    paper = found("CIFAR-10", "WRN28x1", "KD", "DE-4")["NLL"]
    assert paper.std is not None
    distance = (mean - paper.mean) / paper.std
    assert rows["KD"][0] == "2 seeds"
    assert rows["KD"][2] == told(f"{mean:.4f}<br>± {deviation:.4f}<br>*0.270 ± 0.004*<br>*{distance:+.1f} σ*")
    assert re.fullmatch(r"\d/5", rows["KD"][-1])
    assert rows["LatentBE + TDiv-SDiv"][0] == "in progress: seed 0 at epoch 120 of 200"
    assert rows["LatentBE + TDiv-SDiv"][2] == told("–<br>*0.205 ± 0.006*")
    assert rows["BE + ConfODS"][0] == "seed 1 is finished, but has no predictions"
    assert rows["BE"][0] == "not run yet"
    assert rows["BE"][-1] == "–"
    teachers = lines_of(ten, "### Teachers")
    assert teachers["DE-1"][0] == "4 networks"
    assert [teachers[f"DE-{m}"][0] for m in (2, 3, 4)] == ["1 ensemble"] * 3
    singles = [nll_of(root / "results" / "cifar10" / "teachers" / f"teacher-{m}") for m in range(4)]
    assert teachers["DE-1"][2].startswith(f"{statistics.fmean(singles):.4f}<br>±")
    assert "–" not in teachers["DE-4"][2]
    assert lines_of(hundred, "### Teachers")["DE-4"][0] == "in progress: teacher 0 at epoch 7 of 200"
    assert lines_of(hundred, "### Students of DE-4")["KD"][0] == "not run yet"
    # The student of two teachers is in no table of the paper.
    assert "LatentBE, DE-2" in lines_of(ten, "### Further runs")
    assert "1.9000" in lines_of(ten, "### Corrupted")["KD"][1]
    assert told("paper 1.492 ± 0.039") in lines_of(ten, "### Corrupted")["KD"][1]
    assert "generated, seed 0" in ten
    assert lines_of(ten, "### Training time")["KD"][0] == told("10.0 ± 0.0")
    assert lines_of(ten, "### Inference time")["KD"][0] == told("10.0 ± 0.0")  # microseconds
    assert "Not measured yet: out-of-distribution images" in ten
    assert "is not finished" in page.split("## Unfinished or left out")[1]
    assert str(root) not in page


def test_the_readme_and_the_pictures(root: Path, script: Script) -> None:
    results = script("results")
    assert results.main(["--root", str(root)]) == 0
    readme = (root / "README.md").read_text()
    assert readme.startswith("# A title\n\n<!-- results -->\n**CIFAR-10, WRN28x1")
    assert readme.endswith("<!-- /results -->\n\nThe rest.\n")
    assert list(lines_of(readme, "# A title"))[2:] == ["DE-1", "DE-4", "KD"]
    assert "old" not in readme
    assert "Not run: LatentBE, LatentBE + TDiv-SDiv" in readme
    assert "CIFAR-100, WRN28x4: none of the students in the paper's table has finished yet." in readme
    page = (root / "RESULTS.md").read_text()
    pictures = PICTURE.findall(page)
    assert len(pictures) >= 4
    drawn = {path: (root / path).read_bytes() for path in pictures}
    assert {str(path.relative_to(root)) for path in root.rglob("*.svg")} == set(pictures)
    assert not list(root.rglob("*.pdf"))
    # Once more, and nothing changes; a picture that nothing belongs to goes.
    (root / "results" / "pictures" / "old.svg").write_text("<svg/>")
    assert results.main(["--root", str(root)]) == 0
    assert ((root / "RESULTS.md").read_text(), (root / "README.md").read_text()) == (page, readme)
    assert {path: (root / path).read_bytes() for path in pictures} == drawn
    assert not (root / "results" / "pictures" / "old.svg").exists()


def github_names(page: str) -> list[str]:
    """Of the headings, as GitHub makes them: letters, numbers and hyphens, and a number where there are two."""
    names: list[str] = []
    for title in re.findall(r"^##+ (.*)$", page, re.MULTILINE):
        name = "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")
        taken = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", other) is not None for other in names)
        names.append(f"{name}-{taken}" if taken else name)
    return names


def test_results_begin_with_contents_and_sections_with_pictures(root: Path, script: Script) -> None:
    assert script("results").main(["--root", str(root)]) == 0
    page = (root / "RESULTS.md").read_text()
    listed = re.findall(r"^ *- \[[^\]]+\]\(#([^)]+)\)$", page.partition("\n## ")[0], re.MULTILINE)
    assert listed == github_names(page)
    assert "students-of-de-4-1" in listed
    ten = page.split("\n## ")[1]
    assert ten.index(".svg") < ten.index("\n| ")
    first, folded = ten.split("### ")[0].split("<summary>More pictures</summary>")
    assert len(PICTURE.findall(first)) == 3
    assert len(PICTURE.findall(folded)) > 0
    assert page.count("<details>") == page.count("</details>") == page.count("<summary>")
    assert "<summary>ACC % by corruption</summary>" in ten
    rows = lines_of(ten, "### Students of DE-4")
    assert not any("**" in cell for row in rows.values() for cell in row)  # one student is not the best of any
    write_run(root / "results" / "cifar10" / "seed-0" / "be-of-4", student(cifar10(), "be"))
    assert script("results").main(["--root", str(root)]) == 0
    page = (root / "RESULTS.md").read_text()
    rows = lines_of(page, "### Students of DE-4")
    for column in range(1, 6):
        assert [rows[name][column].startswith("**") for name in ("KD", "BE")].count(True) == 1
    assert "Bold: the best student in each column." in page.split("### Teachers")[0]
    assert "**" not in page.split("### Teachers")[1].split("###")[0]


def test_both_settings_are_in_one_picture_once_there_are_both(root: Path, script: Script) -> None:
    results, picture = script("results"), root / "results" / "pictures" / "cost.svg"
    assert results.main(["--root", str(root)]) == 0
    assert not picture.exists()
    home, recipe = root / "results" / "cifar100", dataclasses.replace(cifar100(), members=4)
    for m in range(2):
        shutil.rmtree(home / "teachers" / f"teacher-{m}", ignore_errors=True)
        write_run(home / "teachers" / f"teacher-{m}", recipe, teacher=m)
    write_run(home / "seed-0" / "kd-of-4", student(recipe, "kd"))
    assert results.main(["--root", str(root)]) == 0
    page = (root / "RESULTS.md").read_text()
    assert PICTURE.findall(page)[0] == "results/pictures/cost.svg"
    words = "".join(ET.fromstring(picture.read_text()).itertext())
    assert all(text in words for text in ("CIFAR-10, WRN28x1", "CIFAR-100, WRN28x4", "KD", "ensemble of 2"))
    assert "LatentBE" not in words  # of one setting only


def test_short_runs_for_lines_are_in_no_other_table(root: Path, script: Script) -> None:
    results = script("results")
    assert results.main(["--root", str(root)]) == 0
    before = (root / "RESULTS.md").read_text()
    short = dataclasses.replace(student(cifar10(), "latentbe", members=2), epochs=60)
    run = write_run(root / "results" / "cifar10-lines" / "seed-0" / "latentbe-of-2", short).path
    t = [k / 10 for k in range(-5, 16)]
    curves = [
        {"split": split, "reestimated": again, "error": [0.1] * 21, "nll": [0.3] * 21}
        for split in ("train", "test")
        for again in (False, True)
    ]
    places = ("train", "test", "train_reestimated", "test_reestimated")
    average = {"t": 0.5} | {place: {"error": 0.1, "nll": 0.3} for place in places}
    line = {"images": 100, "statistics": "augmented", "count": {"train": 100, "test": 100}, "members": [0, 1], "t": t}
    measure(run, "subspace", line | {"curves": curves, "average": average, "plane": None})
    assert results.main(["--root", str(root)]) == 0
    page = (root / "RESULTS.md").read_text()
    assert list(lines_of(page, "### Two members"))[2:] == ["LatentBE"]
    own = page[page.index("### Two members") : page.index("## CIFAR-100")]
    listed = "  - [Two members, and the line between them](#two-members-and-the-line-between-them)\n"
    assert page.replace(own, "").replace(listed, "") == before  # nobody else has become "LatentBE (4 teachers)"
    drawn = root / "results" / "pictures" / "cifar10-wrn28x1-lines"
    assert {path.name for path in drawn.iterdir()} == {"subspace.svg", "subspace-reestimated.svg"}
    assert all(f"results/pictures/cifar10-wrn28x1-lines/{path.name}" in own for path in drawn.iterdir())


def test_nothing_there(tmp_path: Path, script: Script) -> None:
    (tmp_path / "README.md").write_text(README)
    assert script("results").main(["--root", str(tmp_path)]) == 0
    page = (tmp_path / "RESULTS.md").read_text()
    assert page.count("not run yet") == 2 * (9 + 4)
    assert told("*0.205 ± 0.006*") in page
    assert (tmp_path / "README.md").read_text().count("has finished yet") == 2
    (tmp_path / "README.md").write_text("no markers")
    with pytest.raises(ValueError, match="expected <!-- results --> and <!-- /results --> once each"):
        script("results").main(["--root", str(tmp_path)])


def test_within_two_deviations_or_better() -> None:
    from onefold.report import COLUMNS
    from onefold.report.grid import Number
    from onefold.reproduce.standing import near

    accuracy, nll = (found("CIFAR-10", "WRN28x1", "KD", "DE-4")[name] for name in ("ACC", "NLL"))  # 93.70 ± 0.10
    for value, wanted in ((93.51, True), (93.49, False), (95.0, True), (math.nan, False)):
        assert near(Number(value, paper=accuracy), COLUMNS[0]) is wanted
    for value, wanted in ((0.277, True), (0.279, False), (0.1, True)):  # 0.270 ± 0.004
        assert near(Number(value, paper=nll), COLUMNS[1]) is wanted
    assert near(Number(0.2, paper=dataclasses.replace(nll, std=None)), COLUMNS[1]) is None
    assert near(Number(None, paper=nll), COLUMNS[1]) is None


def test_what_falls_short_is_said_with_how_far_it_is() -> None:
    from onefold.report import COLUMNS
    from onefold.report.grid import Number
    from onefold.reproduce.standing import Standing, short_of

    paper = found("CIFAR-10", "WRN28x1", "KD", "DE-4")  # 93.70 ± 0.10, 0.270 ± 0.004

    class Ours(Standing):
        cells: tuple[Number, ...] = ()

        def numbers(self, columns: object) -> tuple[Number, ...]:  # noqa: ARG002
            return self.cells

    row = Ours("KD", "seed", None, {}, ())
    object.__setattr__(row, "cells", (Number(93.4, 0.2, 2, paper["ACC"]), Number(0.2, None, 4, paper["NLL"])))
    # 0.3 in deviations of sqrt(0.2^2 + 0.1^2).
    wanted = told("KD in ACC % (93.40 ± 0.20 vs. 93.70 ± 0.10, 1.3 combined deviations away)")
    combined = "A combined deviation is √(ours² + the paper's²)."
    assert short_of([row], COLUMNS[:2]) == [
        f"Worse than the paper by more than two of its standard deviations: {wanted}. {combined}"
    ]
    object.__setattr__(row, "cells", (Number(93.7, 0.2, 2, paper["ACC"]), Number(0.3, None, 4, paper["NLL"])))
    assert short_of([row], COLUMNS[:2])[0].endswith(f"KD in NLL (0.3000 vs. 0.270{PLUS_MINUS}0.004).")
    object.__setattr__(row, "cells", (Number(None), Number(0.27, None, 4, paper["NLL"])))
    assert short_of([row], COLUMNS[:2]) == []
