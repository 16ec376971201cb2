"""torchrun, the command line and SIGKILL: what a cluster does to a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from onefold.engine.checkpoint import load
from onefold.engine.pack import pack
from onefold.run import RunFolder

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ONEFOLD = ["-m", "onefold", "train", "digits", "--network", "wrn10x1", "--epochs", "4", "--eval-every", "1"]
ONEFOLD += ["--optim.warmup-epochs", "1", "--recipe.members", "2", "--parallel.mode", "data", "--members", "0"]
LONG = 240  # seconds


def environment() -> dict[str, str]:
    ours = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return ours | {"OMP_NUM_THREADS": "1"}


def worker(rank: int, folder: Path) -> int:
    """The process of a rank that trains into a folder, once it has begun to."""
    begin = time.monotonic()
    while time.monotonic() - begin < LONG:
        for place in Path("/proc").glob("[0-9]*"):
            try:
                words, variables = (place / "cmdline").read_bytes(), (place / "environ").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in words and f"\0RANK={rank}\0".encode() in b"\0" + variables:
                return int(place.name)
        time.sleep(0.1)
    raise AssertionError("no such process")


def until(there: Path) -> None:
    begin = time.monotonic()
    while not there.exists():
        assert time.monotonic() - begin < LONG, f"{there} never came"
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by what Linux tells of them")
def test_torchrun_goes_on_after_a_killed_worker(tmp_path: Path) -> None:
    """The same bits as a run that was let be; and the command once more changes nothing."""
    command = [*TORCHRUN, *ONEFOLD, "--out", str(tmp_path / "undisturbed")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 processes, data-parallel: all train one teacher after the other together (as asked)" in done.stderr
    assert done.stderr.count("teacher 0 (1 of 1)") == 1, "one process is heard"
    assert done.stdout.count("teacher-0") == 1

    command = [*TORCHRUN, "--max-restarts", "1", *ONEFOLD, "--out", str(tmp_path / "killed")]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        until(tmp_path / "killed" / "teacher-0" / "checkpoints" / "last.safetensors")
        os.kill(worker(1, tmp_path / "killed"), signal.SIGKILL)
        told = run.communicate(timeout=LONG)[1]
    assert run.returncode == 0, told
    assert "going on after step" in told

    one, other = (RunFolder(tmp_path / name / "teacher-0") for name in ("undisturbed", "killed"))
    assert one.model.read_bytes() == other.model.read_bytes()
    states = [pack(load(r.checkpoints / "last.safetensors")["training"])[0] for r in (one, other)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    logs = [[{k: v for k, v in r.items() if k != "seconds"} for r in run.metrics()] for run in (one, other)]
    assert logs[0] == logs[1]
