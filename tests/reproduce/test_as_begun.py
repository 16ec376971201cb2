"""A folder that was begun goes on by the rule it was begun with."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from onefold.recipe import to_dict
from onefold.recipes import recipe_named
from onefold.reproduce.plan import as_begun
from onefold.run import RunFolder


def test_a_run_keeps_the_rule_it_was_begun_with(tmp_path: Path) -> None:
    now = recipe_named("cifar10")
    before = {name: value for name, value in to_dict(now).items() if name != "eval_last"} | {"eval_every": 1}
    run = RunFolder(tmp_path)
    run.begin(before, {}, {})
    kept = as_begun(now, tmp_path)
    assert kept == dataclasses.replace(now, eval_every=1, eval_last=1)
    run.check_same(to_dict(kept), {})


def test_a_new_run_and_a_damaged_one_have_the_rule_of_now(tmp_path: Path) -> None:
    now = recipe_named("cifar10")
    assert as_begun(now, tmp_path / "new") == now
    (tmp_path / "recipe.json").write_text('{"eval_every": "often"}')
    assert as_begun(now, tmp_path) == now
    (tmp_path / "recipe.json").write_text("{")
    assert as_begun(now, tmp_path) == now
