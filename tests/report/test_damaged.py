"""Runs and measurements that cannot be read cost a line, not the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onefold.recipe import to_dict
from onefold.recipes import cifar10
from onefold.report import collect, report
from onefold.run import RunFolder

WriteRun = Callable[..., RunFolder]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("unfinished", "b is not finished (step 4,224 of 70,400, epoch 12, validation accuracy"),
        ("recipe", "recipe.json: expected JSON, got something else"),
        ("older", "recipe: unknown fields colour; it was written by another version"),
        ("empty recipe", "recipe: expected a name, got none"),
        ("null", "recipe: data: expected a JSON object, got null"),
        ("words", 'recipe: optim.lr: expected a number, got "fast"'),
        ("no recipe", "b is not a run folder: expected recipe.json in it"),
        ("about", "run.json: expected JSON, got something else"),
        ("result", "result.json: expected a JSON object, got list"),
        ("predictions", "test.npz: expected labels and logits, got a damaged or foreign file"),
        ("no predictions", "there are no predictions on a test split"),
        ("no values", "logits: expected finite logits"),
    ],
)
def test_a_run_that_cannot_be_used_is_a_line(tmp_path: Path, write: WriteRun, how: str, told: str) -> None:
    write(tmp_path / "a", cifar10(), 0)
    run = write(tmp_path / "b", cifar10(), 1)
    damage(run, how)
    page, (section,) = report([tmp_path], tmp_path / "report.md", format="md")
    assert section.rows[0].networks == 1
    text = page.read_text()
    assert told in text
    assert str(run.path) in text
    page, nothing = report([tmp_path / "b"], tmp_path / "report.html") if how != "no recipe" else (page, [])
    assert nothing == []
    assert how == "no recipe" or "There is no finished run to report on." in page.read_text()


def damage(run: RunFolder, how: str) -> None:
    match how:
        case "unfinished":
            (run.path / "result.json").unlink()
        case "recipe":
            (run.path / "recipe.json").write_text("{")
        case "older":
            run.write_json("recipe.json", to_dict(cifar10()) | {"colour": "blue"})
        case "empty recipe":
            run.write_json("recipe.json", {})
        case "null":
            run.write_json("recipe.json", to_dict(cifar10()) | {"data": None})
        case "words":
            recipe = to_dict(cifar10())
            run.write_json("recipe.json", recipe | {"optim": recipe["optim"] | {"lr": "fast"}})
        case "no recipe":
            (run.path / "recipe.json").unlink()
        case "about":
            (run.path / "run.json").write_text("no")
        case "result":
            (run.path / "result.json").write_text("[]")
        case "predictions":
            (run.path / "predictions" / "test.npz").write_bytes(b"PK")
        case "no predictions":
            (run.path / "predictions" / "test.npz").unlink()
        case "no values":
            run.write_predictions("test", np.zeros(3, np.int64), np.full((3, 10), np.nan))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("corruption", "{", "is damaged and is left out"),
        ("corruption", '{"version": 1, "source": "x", "rows": []}', "is damaged"),
        ("ood", '{"version": 2}', "has version 2, but only version 1 can be read"),
        ("ood", "[]", "is damaged"),
        ("subspace", '{"version": 1, "t": [0, 1], "curves": [{"split": "test"}], "average": {}}', "is damaged"),
        ("costs", '{"version": 1, "device": "x", "inference": [{"what": "single"}]}', "is damaged"),
        ("health", '{"version": 1, "members": [{"acc": "high"}]}', "is damaged"),
    ],
)
def test_a_measurement_that_cannot_be_read_is_a_line(
    tmp_path: Path, write: WriteRun, name: str, content: str, told: str
) -> None:
    run = write(tmp_path / "a", cifar10(), 0)
    (run.path / "measurements" / f"{name}.json").write_text(content)
    page, _ = report([tmp_path], tmp_path / "report.html")
    assert f"{name}.json {told}" in page.read_text()
    assert "<h2>Left out</h2>" in page.read_text()


def test_a_damaged_log_costs_the_curves_only(tmp_path: Path, write: WriteRun) -> None:
    run = write(tmp_path / "a", cifar10(), 0)
    (run.path / "metrics.jsonl").write_text("what?\n{}\n")
    answers, notes = collect([tmp_path])
    assert len(answers) == 1
    assert "expected JSON in line 1" in notes[0]
    assert "its curves are left out" in notes[0]
