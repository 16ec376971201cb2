from __future__ import annotations

import errno
from pathlib import Path

import pytest

from onefold.engine.measure.progress import Failure, listed, reason_of


def test_each_reason_is_told_once() -> None:
    failures = [Failure("costs", Path(f"run-{k}"), "no clock") for k in range(12)]
    failures.insert(1, Failure("health", Path("run-0"), "no clock"))
    assert listed(failures) == ["costs of run-0, run-1, run-2 and 9 more: no clock", "health of run-0: no clock"]
    assert listed(failures[:3]) == ["costs of run-0, run-1: no clock", "health of run-0: no clock"]
    assert str(failures[0]) == "costs of run-0: no clock"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.npz"), "a.npz: no such file or directory"),
        (OSError(errno.ENOSPC, "No space left on device"), "no space left on device"),
        (OSError(errno.EIO, "the disk is gone"), "[Errno 5] the disk is gone"),
        (ValueError("expected a run"), "expected a run"),
    ],
)
def test_reasons_are_in_words(error: Exception, expected: str) -> None:
    assert reason_of(error) == expected
