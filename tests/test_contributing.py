"""The method that CONTRIBUTING.md adds in one file works as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from onefold import Teachers, distill
from onefold.methods import PASSED

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()


def test_a_method_in_one_file() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "CONTRIBUTING.md", "exec"), names)
    x, y = torch.rand(32, 3), torch.randint(2, (32,))
    teachers = Teachers([nn.Sequential(nn.Linear(3, 2)) for _ in range(3)])
    net = nn.Sequential(nn.Linear(3, 2))
    result = distill(teachers, net, (x, y), method=names["MEAN_LOGIT"], perturbation="tdiv", epochs=2, test=(x, y))
    assert type(result.model) is nn.Sequential
    assert not torch.equal(result.model.get_parameter("0.weight"), net.get_parameter("0.weight"))
    given: dict[str, Any] = {"method": names["MEAN_LOGIT"], "perturbation": "tdiv", "epochs": 2}
    softer = distill(teachers, net, (x, y), temperature=8.0, **given).model
    assert not torch.equal(result.model.get_parameter("0.weight"), softer.get_parameter("0.weight"))


def test_all_names_that_are_passed_are_listed() -> None:
    for name in PASSED:
        assert re.search(rf"^\|.*`{name}`.*\|$", TEXT, re.MULTILINE)
