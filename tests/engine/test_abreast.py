"""Runs that share a device come out as if each had been alone."""

from __future__ import annotations

import importlib
import os
import signal
import weakref
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch

from onefold.engine import Interrupted, conduct
from onefold.engine.abreast import AHEAD, Together, abreast, alone, sharing
from onefold.engine.conduct import conducting
from onefold.engine.watch import Pace
from onefold.run import RunFolder

CPU = torch.device("cpu")
PAIRS = [("latentbe", "tdiv-sdiv"), ("kd", "confods"), ("supervised", "gaussian")]


def test_every_run_ends_with_its_own_bits(make_job: Any) -> None:
    expected = [conduct(make_job(*pair, seed=3)) for pair in PAIRS]
    state = torch.get_rng_state()
    found = abreast([conducting(make_job(*pair, seed=3)) for pair in PAIRS], CPU)
    assert torch.equal(torch.get_rng_state(), state)
    for one, other in zip(expected, found, strict=True):
        assert one.metrics == other.metrics
        for name, value in one.model.state_dict().items():
            assert torch.equal(value, other.model.state_dict()[name]), name


def test_time_is_shared_among_those_who_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they took as long as the clock says."""
    now = 100.0
    monkeypatch.setattr("onefold.engine.watch.time.monotonic", lambda: now)

    def run(steps: int) -> Generator[None, None, float]:
        nonlocal now
        pace = Pace(0, 7.0)  # seconds from before an interruption
        for _ in range(steps):
            now += 1.0
            pace.seconds()
            yield
        return pace.seconds()

    assert alone(run(5), CPU) == 12.0
    now = 100.0
    short, long = abreast([run(4), run(10)], CPU)
    assert short + long - 2 * 7 == pytest.approx(now - 100, abs=1.0)  # the first begins before the second does
    assert short < long < 7 + 14
    assert sharing() == 1


def test_who_waits_lets_the_others_go_ahead() -> None:
    """Between two epochs a run waits for the device, which gets steps of the others first, if there are any."""
    order: list[tuple[str, str]] = []

    def run(name: str, epochs: int, steps: int) -> Generator[bool, None, str]:
        for _ in range(epochs):
            for _ in range(steps):
                order.append((name, "step"))
                yield False
            yield True
            order.append((name, "wait"))
            yield False
        return name

    assert abreast([run("a", 3, 4 * AHEAD), run("b", 3, 4 * AHEAD), run("c", 1, 5)], CPU) == ["a", "b", "c"]
    assert len(order) == 2 * 3 * (4 * AHEAD + 1) + 6
    waits = [k for k, (_, what) in enumerate(order) if what == "wait"]
    for k, first in enumerate(waits[:-1]):  # the last one has nobody left to wait for
        ahead = [name for name, what in order[max([0, *waits[:k]]) : first] if what == "step"]
        others = [name for name in ahead if name != order[first][0]]
        assert len(others) >= AHEAD, f"wait {k} of {order[first][0]}"
    order.clear()
    assert abreast([run("a", 2, 3)], CPU) == ["a"]
    assert order == 2 * [*3 * [("a", "step")], ("a", "wait")]


def test_one_that_fails_lets_the_others_finish(make_job: Any, tmp_path: Path) -> None:
    def failing() -> Generator[None, None, Any]:
        yield
        raise ValueError("odd")

    run = RunFolder(tmp_path / "run")
    with pytest.raises(ValueError, match="odd"):
        abreast([failing(), conducting(make_job(), run)], CPU)
    assert run.finished


def test_the_next_begins_as_soon_as_one_has_ended() -> None:
    order: list[str] = []

    def run(name: str, steps: int) -> Generator[None, None, str]:
        order.append(f"{name} begins, of {sharing()}")
        for _ in range(steps):
            yield
        order.append(f"{name} ends")
        return name

    assert abreast([run("a", 9), run("b", 2), run("c", 3), run("d", 1)], CPU, most=2) == ["a", "b", "c", "d"]
    assert order == [
        "a begins, of 2", "b begins, of 2", "b ends", "c begins, of 2", "c ends", "d begins, of 2", "d ends", "a ends"
    ]  # fmt: skip


def test_after_a_failure_no_other_begins(make_job: Any, tmp_path: Path) -> None:
    def failing() -> Generator[None, None, Any]:
        yield
        raise ValueError("odd")

    runs = [RunFolder(tmp_path / str(k)) for k in range(2)]
    with pytest.raises(ValueError, match="odd"):
        abreast([failing(), *(conducting(make_job(), run) for run in runs)], CPU, most=2)
    assert [run.finished for run in runs] == [True, False]
    assert not runs[1].started


def test_a_signal_stops_all_of_them_and_all_go_on(make_job: Any, tmp_path: Path) -> None:
    class Impatient:
        def update(self, done: int, *_: float) -> None:
            if done == 5:
                os.kill(os.getpid(), signal.SIGTERM)

        def message(self, text: str) -> None:
            pass

    folders = [tmp_path / str(k) for k in range(2)]
    handler = signal.getsignal(signal.SIGTERM)

    def going() -> list[Any]:
        return [conducting(make_job(seed=k, log_every=1), RunFolder(f)) for k, f in enumerate(folders)]

    with pytest.raises(Interrupted):
        abreast(
            [conducting(make_job(seed=0, log_every=1), RunFolder(folders[0]), progress=Impatient()), going()[1]], CPU
        )
    assert signal.getsignal(signal.SIGTERM) == handler
    assert not any(RunFolder(f).finished for f in folders)
    resumed = abreast(going(), CPU)
    for k, result in enumerate(resumed):
        straight = conduct(make_job(seed=k, log_every=1))
        for name, value in straight.model.state_dict().items():
            assert torch.equal(value, result.model.state_dict()[name]), name


def test_alone_takes_all_steps() -> None:
    def steps() -> Generator[None, None, int]:
        for _ in range(3):
            yield
        return 7

    assert alone(steps(), CPU) == 7


def test_the_progress_of_several_is_told_once() -> None:
    class Heard:
        def __init__(self) -> None:
            self.updates: list[tuple[int, float]] = []
            self.messages: list[str] = []

        def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None:  # noqa: ARG002
            self.updates.append((done, rate))

        def message(self, text: str) -> None:
            self.messages.append(text)

    heard = Heard()
    together = Together(heard)
    told = [together.of(k, f"teacher {k}") for k in range(3)]

    def run(k: int, steps: int, rate: float) -> Generator[None, None, None]:
        for done in range(1, steps + 1):
            told[k].update(done, steps, 0.5, 0.1, rate)
            yield
        if k == 1:
            raise ValueError("odd")

    runs = [together.following(k, run(k, *each)) for k, each in enumerate([(2, 10.0), (3, 5.0), (4, 7.0)])]
    with pytest.raises(ValueError, match="odd"):
        abreast(runs, CPU, failed=together.failed)
    told[2].message("finished")
    # The oldest that is going on speaks, of the rate of all that are; one that has failed is silent, and said so.
    assert heard.updates == [(1, 10.0), (2, 22.0), (3, 12.0), (4, 7.0)]
    assert heard.messages == ["teacher 1: ValueError: odd; no further run starts", "teacher 2: finished"]
    assert together.rates == {}


class Held:
    """What a run holds on the device."""


def test_a_run_that_failed_holds_nothing_while_others_go_on() -> None:
    alive: list[weakref.ref[Held]] = []
    seen: list[bool] = []

    def failing() -> Generator[None, None, None]:
        held = Held()
        alive.append(weakref.ref(held))
        yield
        try:
            raise MemoryError("none left")
        except MemoryError as error:
            raise ValueError(f"odd {held}") from error

    def other() -> Generator[None, None, None]:
        for _ in range(5):
            yield
            seen.append(alive[0]() is not None)

    with pytest.raises(ValueError, match="odd"):
        abreast([failing(), other()], CPU)
    assert seen == 5 * [False]


def test_whoever_could_not_save_itself_is_told_before_who_was_stopped() -> None:
    def stopped(failure: Exception) -> Generator[None, None, None]:
        yield
        raise failure

    runs = [stopped(Interrupted("stopped", signal.SIGTERM)), stopped(OSError("no room on the disk"))]
    with pytest.raises(OSError, match="no room"):
        abreast(runs, CPU)


def test_nobody_is_left_halfway(make_job: Any, tmp_path: Path) -> None:
    """As after a second Ctrl-C, whose traceback a notebook keeps."""

    def impatient() -> Generator[None, None, Any]:
        yield
        torch.rand(3)
        raise KeyboardInterrupt

    run = RunFolder(tmp_path / "run")
    handler, job = signal.getsignal(signal.SIGTERM), make_job()
    state = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt) as kept:
        abreast([conducting(job, run), impatient()], CPU)
    assert signal.getsignal(signal.SIGTERM) == handler
    with pytest.raises(KeyboardInterrupt):
        abreast([impatient()], CPU)
    assert torch.equal(torch.get_rng_state(), state)
    assert abreast([conducting(make_job(), run)], CPU)[0].folder == run.path
    assert kept.value is not None


@pytest.mark.parametrize("most", [1, 2])
def test_a_signal_while_one_is_finished_stops_the_others(
    make_job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Runs of equal length end together: one evaluates its last network while another is about to."""
    module = importlib.import_module("onefold.engine.conduct")
    usual, sent = module.finish, list[Any]()

    def finish(*args: Any, **kwargs: Any) -> Any:
        if not sent:
            sent.append(signal.getsignal(signal.SIGTERM))
            os.kill(os.getpid(), signal.SIGTERM)
        return usual(*args, **kwargs)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "finish", finish)
    folders = [RunFolder(tmp_path / str(k)) for k in range(3)]
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises((Interrupted, KeyboardInterrupt)):
            abreast([conducting(make_job(seed=k), run) for k, run in enumerate(folders)], CPU, most=most)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not folders[2].started
    assert sum(run.finished for run in folders) == (1 if most == 2 else 0)
