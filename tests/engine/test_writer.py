from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from onefold.engine import checkpoint
from onefold.engine.keeper import Keeper
from onefold.engine.writer import PENDING, Writer
from onefold.run import RunFolder


def test_one_after_the_other_in_their_order() -> None:
    writer, done, gate = Writer(), list[int](), threading.Event()
    writer.later(lambda: done.append(0) if gate.wait(10) else None)
    writer.later(lambda: done.append(1))
    assert done == []  # nobody waited
    gate.set()
    writer.wait()
    assert done == [0, 1]
    writer.close()


def test_memory_holds_a_few_at_most() -> None:
    writer, gates, begun = Writer(), [threading.Event() for _ in range(PENDING)], threading.Event()

    def submit() -> None:
        for gate in gates:
            writer.later(partial(gate.wait, 10))
        begun.set()
        writer.later(lambda: None)  # waits for the first

    asking = threading.Thread(target=submit)
    asking.start()
    assert begun.wait(10)
    asking.join(0.1)
    assert asking.is_alive()
    gates[0].set()
    asking.join(10)
    assert not asking.is_alive()
    gates[1].set()
    writer.close()


def test_none_after_one_that_failed() -> None:
    writer, done = Writer(), list[int]()

    def fail() -> None:
        raise OSError(28, "No space left on device")

    def ask() -> None:
        for k in range(100):  # at the latest when too many wait
            writer.later(partial(done.append, k))

    writer.later(fail)
    with pytest.raises(OSError, match="No space"):
        ask()
    writer.close()
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
    torch.testing.assert_close(
        checkpoint.load(run.checkpoints / "best-00000003.safetensors")["student"]["weight"], expected
    )


def test_a_checkpoint_under_way_counts_as_one(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.checkpoints.mkdir()
    gate = threading.Event()
    with Keeper(run) as keeper:
        keeper.writer.later(lambda: gate.wait(10))
        keeper.save_last({"step": 1}, None)
        assert keeper.last == run.checkpoints / "last.safetensors"
        gate.set()
    assert checkpoint.load(run.checkpoints / "last.safetensors") == {"step": 1}


def test_a_failing_disk_does_not_hide_what_failed_before_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)  # without a folder for checkpoints

    def both() -> None:
        with Keeper(run) as keeper:
            keeper.save_last({"step": 1}, None)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        both()
    assert any("could not be written" in note for note in caught.value.__notes__)
