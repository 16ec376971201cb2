"""The training loop of one's own that docs/methods.md shows runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from onefold import subnetwork
from onefold.objectives import one_to_one

TEXT = (Path(__file__).parent.parent / "docs" / "methods.md").read_text()


def ran(*marks: str) -> dict[str, Any]:
    """What the blocks with these marks define, run one after the other."""
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    for mark in marks:
        (code,) = re.findall(rf"<!-- {mark} by tests/test_methods_page.py -->\n```python\n(.*?)```", TEXT, re.DOTALL)
        exec(compile(code, "docs/methods.md", "exec"), names)
    return names


def test_the_pieces_without_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
    names = ran("run")
    student, net, member = names["student"], names["net"], names["member"]
    assert capsys.readouterr().out == f"{student.report}\n"
    assert names["loss"].isfinite()
    for m, other in ((0, member), (1, subnetwork(student, 1))):  # what the pieces gave has learned, each in its own way
        assert type(other) is type(net) is type(names["network"]())
        assert not torch.equal(other.get_parameter("2.weight"), net.get_parameter("2.weight")), m
    members = [subnetwork(student, m).get_parameter("2.weight").detach() for m in range(4)]
    torch.testing.assert_close(net.get_parameter("2.weight").detach(), torch.stack(members).mean(0))
    assert not net.training
    assert names["teachers"](names["x"]).shape == student(names["x"]).shape == (4, 64, 10)


def test_an_objective_and_a_perturbation_of_one_s_own() -> None:
    names = ran("run", "continued")
    assert type(names["result"].model) is type(names["network"]())
    student, teachers, labels = torch.randn(4, 6, 10), torch.randn(4, 6, 10), torch.arange(6)
    found = names["weighted"](student, teachers, labels)
    weights = torch.linspace(0.5, 1.5, 10)[:6]
    expected = sum(w * one_to_one(student[:, [b]], teachers[:, [b]], labels[[b]]) for b, w in enumerate(weights)) / 6
    torch.testing.assert_close(found, expected)
