"""Where runs compute."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator

import pytest
import torch

from onefold.engine.abreast import alone
from onefold.engine.device import current


def test_what_is_not_said_to_be_elsewhere_is_on_the_runs_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels and streams take the current device: with cuda:1 that must not be the first one."""
    entered: list[torch.device] = []

    @contextlib.contextmanager
    def device(chosen: torch.device) -> Iterator[None]:
        entered.append(chosen)
        yield
        entered.remove(chosen)

    def run() -> Iterator[bool]:
        yield entered == [torch.device("cuda:1")]

    monkeypatch.setattr(torch.cuda, "device", device)
    with current(torch.device("cuda:1")):
        assert next(run())
    for elsewhere in ("cpu", "cuda"):
        with current(torch.device(elsewhere)):
            assert not entered

    def steps() -> Generator[bool, None, list[torch.device]]:
        yield False
        return list(entered)

    assert alone(steps(), torch.device("cuda:1")) == [torch.device("cuda:1")]
    assert not entered
