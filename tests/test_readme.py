"""The README's quickstart runs as it stands, with fewer epochs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def test_quickstart(capsys: pytest.CaptureFixture[str]) -> None:
    text = README.read_text()
    (code,) = re.findall(r"run by tests/test_readme.py -->\n```python\n(.*?)```", text, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    short = code.replace("epochs=10", "epochs=1").replace('"epochs": 10', '"epochs": 1')
    assert short != code
    names: dict[str, object] = {}
    exec(compile(short, "README.md", "exec"), names)
    assert "'nll'" in capsys.readouterr().out
    assert type(names["served"]).__name__ == "WideResNet"
