from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from onefold.engine.keeping.checkpoint import load
from onefold.engine.keeping.pack import pack
from onefold.run import RunFolder

SCRIPT = Path(__file__).parent / "killed.py"


def test_a_run_killed_at_any_moment_ends_in_the_same_bits(tmp_path: Path) -> None:
    """By SIGKILL after some time, and inside a write: half-way, before it is synced, before and after it is renamed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), str(tmp_path), "0"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    first, *ends = done.stdout.split("\n")[:-1]
    assert done.returncode == 0, done.stderr
    assert first == "undisturbed 0", done.stderr
    assert "failed" not in ends, done.stderr
    assert ends.count("finished") == 3, ends
    assert len(ends) >= 12, ends
    assert {"later", "half", "unsynced"} <= set(ends), ends
    for name in ("killed-0", "killed-1", "killed-2"):
        assert_same(RunFolder(tmp_path / "undisturbed"), RunFolder(tmp_path / name))


def assert_same(a: RunFolder, b: RunFolder) -> None:
    """All but the times that things took."""
    assert a.model.read_bytes() == b.model.read_bytes()
    one, other = (pack(load(run.checkpoints / "last.safetensors")["training"])[0] for run in (a, b))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    for split in ("val", "test"):
        expected, found = a.predictions(split), b.predictions(split)
        assert expected is not None
        assert found is not None
        np.testing.assert_array_equal(expected[1], found[1])
    logs = [[{k: v for k, v in r.items() if k != "seconds"} for r in run.metrics()] for run in (a, b)]
    assert logs[0] == logs[1]
    files = [{str(p.relative_to(run.path)) for p in run.path.rglob("*")} for run in (a, b)]
    assert files[0] == files[1]
