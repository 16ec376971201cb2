from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from onefold.engine import Interrupted, Job, conduct
from onefold.engine.keeping import checkpoint as checkpoints
from onefold.engine.keeping.checkpoint import load
from onefold.engine.keeping.keeper import Keeper
from onefold.engine.keeping.writer import PENDING, Writer
from onefold.run import RunFolder, write_aside


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_in_the_end(*_: object) -> None:
    time.sleep(0.05)
    full()


def slowly(seconds: float, path: Path, content: Any) -> None:
    time.sleep(seconds)
    write_aside(path, content)


def after(gate: threading.Event, write: Callable[[], object]) -> Callable[[], None]:
    def waiting() -> None:
        assert gate.wait(10)
        write()

    return waiting


class Told:
    """Does something when a step is reported."""

    def __init__(self, at: int, do: Any) -> None:
        self.at, self.do = at, do

    def update(self, done: int, *_: object) -> None:
        if done == self.at:
            self.do()

    def message(self, text: str) -> None: ...


def test_one_after_the_other_in_their_order() -> None:
    writer, done, gate = Writer(), list[int](), threading.Event()
    writer.later(after(gate, partial(done.append, 0)))
    writer.later(lambda: done.append(1))
    assert done == []  # nobody waited
    gate.set()
    writer.wait()
    assert done == [0, 1]


def test_memory_holds_a_few_at_most() -> None:
    writer, gates, begun = Writer(), [threading.Event() for _ in range(PENDING)], threading.Event()

    def submit() -> None:
        for gate in gates:
            writer.later(partial(gate.wait, 10))
        begun.set()
        writer.make_room()  # waits for the first

    asking = threading.Thread(target=submit)
    asking.start()
    assert begun.wait(10)
    asking.join(0.1)
    assert asking.is_alive()
    gates[0].set()
    asking.join(10)
    assert not asking.is_alive()
    gates[1].set()
    writer.wait()


def test_none_after_one_that_failed() -> None:
    writer, done, gate = Writer(), list[int](), threading.Event()
    writer.later(after(gate, full))
    writer.later(partial(done.append, 1))  # waits behind it
    gate.set()
    with pytest.raises(OSError, match="No space"):
        writer.wait()
    with pytest.raises(OSError, match="No space"):
        writer.wait()
    assert done == []


def test_what_is_written_is_what_was_there_when_it_was_asked_for(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.checkpoints.mkdir()
    net = nn.Linear(2, 2)
    expected = net.weight.detach().clone()
    gate = threading.Event()
    with Keeper(run) as keeper:
        keeper.writer.later(lambda: gate.wait(10))
        keeper.save_best(3, net)
        with torch.no_grad():
            net.weight += 1
        assert list(run.checkpoints.iterdir()) == []
        gate.set()
    found = load(run.checkpoints / "best-00000003.safetensors")["student"]["weight"]
    torch.testing.assert_close(found, expected)


def test_the_log_is_on_the_disk_before_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()
    monkeypatch.setattr(RunFolder, "sync_metrics", lambda _: done.append("log"))
    monkeypatch.setattr(checkpoints, "write_aside", lambda *_: done.append("checkpoint"))
    run = RunFolder(tmp_path)
    run.checkpoints.mkdir()
    with Keeper(run) as keeper:
        keeper.save_last({"step": 1}, None)
    assert done == ["log", "checkpoint"]


def test_a_failing_disk_does_not_hide_what_failed_before_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)  # without a folder for checkpoints

    def both() -> None:
        with Keeper(run) as keeper:
            keeper.save_last({"step": 1}, None)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        both()
    assert any("could not be written" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("at", [4, 6, 8])
def test_what_is_said_to_be_held_is(at: int, make_job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped at an epoch's end, within one, and at the end of all, while the disk takes its time."""
    monkeypatch.setattr(checkpoints, "write_aside", partial(slowly, 0.2))
    job: Job = make_job(log_every=1)
    told = Told(at, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted, match=f"after step {at} of 8; progress is saved in .*"):
        conduct(job, RunFolder(tmp_path), {"recipe": 1}, progress=told)
    assert load(tmp_path / "checkpoints" / "last.safetensors")["step"] == at
    assert not [thread for thread in threading.enumerate() if thread.name == "onefold-writer"]


def test_nothing_is_said_to_be_held_on_a_full_disk(
    make_job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "write_aside", full_in_the_end)
    told = Told(4, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(OSError, match="could not be written"):
        conduct(make_job(log_every=1), RunFolder(tmp_path), {"recipe": 1}, progress=told)


def test_a_run_ends_when_all_is_written(make_job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best weights, which the result is made of, among them."""
    monkeypatch.setattr(checkpoints, "write_aside", partial(slowly, 0.2))
    assert conduct(make_job(), RunFolder(tmp_path), {"recipe": 1}).metrics["count"] > 0
    assert load(tmp_path / "checkpoints" / "last.safetensors")["step"] == 8


def test_a_full_disk_is_told_within_the_next_epoch(
    make_job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first epoch's weights cannot be written: it is said at the next line of the log."""
    monkeypatch.setattr(checkpoints, "write_aside", full_in_the_end)
    seen = list[int]()

    class Seeing(Told):
        def update(self, done: int, *_: object) -> None:
            seen.append(done)
            time.sleep(0.1)

    job: Job = make_job(log_every=1)
    with pytest.raises(OSError, match=r"could not be written .*, there is no previous one"):
        conduct(job, RunFolder(tmp_path), {"recipe": 1}, progress=Seeing(0, None))
    assert seen[-1] == 5


def test_a_checkpoint_that_could_not_be_written_is_not_spoken_of(
    make_job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is no number any more while the first epoch's checkpoint is on its way to a full disk."""

    monkeypatch.setattr(checkpoints, "write_aside", full_in_the_end)

    class Breaking(torch.optim.SGD):
        steps = 0

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            super().step(closure)
            self.steps += 1
            if self.steps == 5:
                for group in self.param_groups:
                    group["params"][0].data.fill_(torch.nan)

    job: Job = make_job(log_every=1, optimizer=lambda groups: Breaking(groups))
    with pytest.raises(OSError, match=r"could not be written .*, there is no previous one"):
        conduct(job, RunFolder(tmp_path), {"recipe": 1})


def test_a_training_in_a_thread_outlives_the_main_one(tmp_path: Path) -> None:
    script = f"""
import sys, threading
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from pathlib import Path
import killed
threading.Thread(target=lambda: (killed.train(Path({str(tmp_path)!r}), 10.0), print("trained"))).start()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "trained\n", done.stderr
