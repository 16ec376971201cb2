"""The training loop of one's own that docs/methods.md shows runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from onefold import subnetwork

TEXT = (Path(__file__).parent.parent / "docs" / "methods.md").read_text()


def test_the_pieces_without_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"<!-- run by tests/test_methods_page.py -->\n```python\n(.*?)```", TEXT, re.DOTALL)
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/methods.md", "exec"), names)
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
