"""Commands under torchrun that several processes do not share."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from onefold import cli
from onefold.cli import run_demo


@pytest.mark.parametrize(
    ("words", "who"),
    [
        ("evaluate runs --health", [0]),
        ("report runs", [0]),
        ("export runs --format onnx", [0]),
        ("train digits", [0, 1]),
        ("distill digits --teachers runs", [0, 1]),
    ],
)
def test_what_is_not_shared_is_done_by_the_first_process(
    words: str, who: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "several", lambda: True)
    carried: list[int] = []
    for rank in (0, 1):
        monkeypatch.setattr(cli, "join", lambda rank=rank: rank)
        monkeypatch.setattr(cli, "carry_out", lambda *_, rank=rank: carried.append(rank))
        assert cli.main(words.split()) == 0
    assert carried == who


def test_the_demo_starts_its_own_workers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run_demo, "world_here", lambda: SimpleNamespace(size=2))
    assert cli.main(["demo"]) == cli.REFUSED
    assert "demo: expected one process" in capsys.readouterr().err
