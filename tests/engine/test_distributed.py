"""Several processes against one, on the same global batches, in float64."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from onefold.engine.capture import CapturedStep, Graph
from onefold.engine.distributed.failing import KEY, claim, failed
from onefold.engine.distributed.part import Part
from onefold.engine.distributed.plan import by_members, spreads
from onefold.engine.distributed.processes import Processes
from onefold.engine.distributed.world import ALONE
from onefold.engine.keeping.checkpoint import load
from onefold.engine.keeping.pack import pack
from onefold.methods import METHODS
from onefold.run import RunFolder

TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "--max-restarts",
    "1",
]
TRAIN = ["-m", "onefold", "train", "digits", "--network", "mlp", "--epochs", "40", "--recipe.members", "2"]
TRAIN += ["--members", "0", "--parallel.mode", "data"]
LONG = 240  # seconds
SCRIPT = Path(__file__).parent / "together.py"
OWN_RANDOMNESS = {"dropout"}  # what a network draws by itself is drawn by each process for its own examples
THREE = {"one for all", "two for three", "uneven", "accumulated", "drop last"}


def environment() -> dict[str, str]:
    ours = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return ours | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """The folder of all runs, and what the processes said."""
    folder: Path = tmp_path_factory.mktemp("together")
    command = [sys.executable, str(SCRIPT), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=LONG, check=False)
    assert done.returncode == 0, done.stderr
    return folder, [line.split("|") for line in done.stdout.splitlines()]


def state(folder: Path) -> dict[str, Tensor]:
    """Weights, momenta, averages, statistics and where the random numbers stand."""
    return pack(load(folder / "checkpoints" / "last.safetensors")["training"])[0]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k != "seconds"} for r in RunFolder(folder).metrics()]


CASES = [*METHODS, "equal", *sorted(THREE)]


@pytest.mark.parametrize("case", CASES)
def test_processes_agree_with_one(case: str, runs: tuple[Path, list[list[str]]]) -> None:
    """In every weight, momentum, average and running statistic, every line of the log and every prediction."""
    folder, _ = runs
    expected = state(folder / "1" / case)
    others = sorted(path for path in folder.glob(f"[23]*/{case}"))
    assert {path.parent.name for path in others} >= {"2"} | ({"3"} if case in THREE else set())
    for other in others:
        found = state(other)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-11, atol=1e-12, msg=f"{other}: {name}")
        for ours, theirs in zip(lines(folder / "1" / case), lines(other), strict=True):
            words = {name for name, value in ours.items() if value is None or isinstance(value, str)}
            assert all(theirs.pop(name) == ours.pop(name) for name in words)
            assert theirs == pytest.approx(ours, rel=1e-6, abs=1e-9)
        for split in ("val", "test"):
            one, several = (RunFolder(path).predictions(split) for path in (folder / "1" / case, other))
            assert one is not None
            assert several is not None
            np.testing.assert_array_equal(several[0], one[0])
            np.testing.assert_allclose(several[1], one[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", ["latentbe", "two for three"])
def test_what_is_measured_agrees(case: str, runs: tuple[Path, list[list[str]]]) -> None:
    """Whether averaging hurts, and that the members' diversity was looked at, teachers that are spread included."""
    folder, _ = runs

    def health(run: Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((run / "measurements" / "health.json").read_text())
        return found

    expected = health(folder / "1" / case)
    for other in folder.glob(f"[23]*/{case}"):
        found = health(other)
        assert found["count"] == expected["count"] == 101
        for name in ("ensemble", "collapsed", "collapsed_reestimated"):
            assert found[name] == pytest.approx(expected[name], rel=1e-6)
        for ours, theirs in zip(expected["members"], found["members"], strict=True):
            assert theirs == pytest.approx(ours, rel=1e-6)
        assert {"diversity", "perturbation"} <= {record["kind"] for record in lines(other)}


def test_the_cases_would_differ(runs: tuple[Path, list[list[str]]]) -> None:
    """The weights have moved far from where they began, and far apart in different cases."""
    folder, _ = runs
    one, other = (state(folder / "1" / case)["/student/net.conv.weight"] for case in ("latentbe", "uneven"))
    assert float((one - other).abs().max()) > 1e-4


def test_spread_teachers_were_tried(runs: tuple[Path, list[list[str]]]) -> None:
    folder, _ = runs
    assert {path.name for path in folder.glob("2-spread/*")} == {"latentbe", "kd", "aekd", "two for three"}
    assert {path.name for path in folder.glob("3-spread/*")} == {"latentbe", "kd", "aekd", "two for three"}


def test_all_processes_end_with_the_same_ordinary_network(runs: tuple[Path, list[list[str]]]) -> None:
    _, said = runs
    for name, _, case, nll, *kinds in (line for line in said if line[0][:1] in ("1", "2", "3")):
        assert not any("AcrossProcesses" in kind for kind in kinds)
        first = next(line for line in said if line[:3] == [name, "0", case])
        assert nll == first[3]


def ends(said: list[list[str]], kind: str) -> list[str]:
    return [line[2] for line in sorted(line for line in said if line[0] == kind)]


def test_a_signal_to_one_stops_all_and_any_number_goes_on(runs: tuple[Path, list[list[str]]]) -> None:
    folder, said = runs
    stories = folder / "stories"
    assert ends(said, "undisturbed") == ["finished"] * 2
    stopped = ends(said, "stopped")
    assert len(stopped) == 2
    assert all(end.startswith("Interrupted: stopped by SIGTERM after step 3 of 10; ") for end in stopped)
    assert ends(said, "continued by 2") == ["finished"] * 2
    expected, found = state(stories / "undisturbed"), state(stories / "stopped")
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected), "bit by bit, dropout included"
    assert lines(stories / "undisturbed") == lines(stories / "stopped")
    for size in (1, 3):
        assert ends(said, f"continued by {size}") == ["finished"] * size
        assert RunFolder(stories / f"continued by {size}").finished


def test_nobody_says_that_all_is_held_before_it_is(runs: tuple[Path, list[list[str]]]) -> None:
    slow, full = ([line[1:] for line in sorted(runs[1]) if line[0] == kind] for kind in ("slow", "full"))
    assert [(rank, step) for rank, _, step in slow] == [("0", "3"), ("1", "3")]
    assert all("progress is saved in" in end for _, end, _ in slow)
    assert [(rank, step) for rank, _, step in full] == [("0", "nothing"), ("1", "nothing")]
    assert full[0][1].startswith("OSError: [Errno 28] the checkpoint could not be written (No space left on device)")
    assert "progress is saved in" not in full[1][1]


def test_dropout_is_drawn_by_each_process(runs: tuple[Path, list[list[str]]]) -> None:
    """Both keep their own numbers apart from the pair of the batch, which is common."""
    folder, _ = runs
    every = state(folder / "stories" / "undisturbed")
    own = [every[f"/random/own/{rank}/cpu"] for rank in range(2)]
    assert not torch.equal(own[0], own[1])
    assert not torch.equal(own[0], every["/random/cpu"])
    alone = state(folder / "1" / "dropout")
    weights = "/student/net.2.weight"
    assert float((alone[weights] - state(folder / "2" / "dropout")[weights]).abs().max()) > 1e-6


def test_a_process_that_fails_or_dies_ends_the_others(runs: tuple[Path, list[list[str]]]) -> None:
    _, said = runs
    failed = ends(said, "failed")
    assert failed[1] == "ValueError: an accident"
    assert failed[0].startswith("Lost: another process has ended")
    (died,) = ends(said, "died")
    assert died.startswith("Lost: another process has ended")


def test_from_python(runs: tuple[Path, list[list[str]]]) -> None:
    _, said = runs
    one, *two = (float(line[3]) for line in sorted(line for line in said if line[0] == "tensors"))
    assert len(two) == 2
    assert two == pytest.approx([one, one], rel=1e-6)
    for rank, sentence in enumerate(ends(said, "same")):
        assert f"train: expected a DataLoader with a DistributedSampler(num_replicas=2, rank={rank})" in sentence
    assert len(ends(said, "same")) == 2


def test_processes_agree_where_validation_examples_are_random(runs: tuple[Path, list[list[str]]]) -> None:
    """On the metrics, the learning rates that follow from them, and the epoch that is the best."""
    first, second = sorted(line[2:] for line in runs[1] if line[0] == "loaders")
    assert len(first) == 2
    assert first == second


@pytest.mark.parametrize(("kind", "what"), [("seeds", "seed: 0 -> 1"), ("data", "glances.test: these are other")])
def test_processes_that_were_given_different_things_are_refused(
    kind: str, what: str, runs: tuple[Path, list[list[str]]]
) -> None:
    """By all of them alike."""
    sentences = ends(runs[1], kind)
    assert len(sentences) == 2
    for sentence in sentences:
        assert "expected the same settings, data and teachers in all processes, but those of process 1" in sentence
        assert what in sentence


@pytest.mark.parametrize("case", ["rewritten-2", "rewritten-3", "broken-2"])
def test_rewritten_students_agree_with_one_process(case: str, runs: tuple[Path, list[list[str]]]) -> None:
    """In every gradient, weight, statistic and loss, with unequal parts, with none, and where one has to give up."""
    folder, _ = runs
    expected = torch.load(folder / "rewritten" / "rewritten-1-0.pt")
    for rank in range(int(case[-1])):
        found = torch.load(folder / "rewritten" / f"{case}-{rank}.pt")
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-11, msg=f"{rank}: {name}")


def test_processes_decide_alike_about_the_fast_path(runs: tuple[Path, list[list[str]]]) -> None:
    """An accident in the last process, in rewriting or in capturing, sends all of them the other way."""
    _, said = runs
    assert sorted(line for line in said if line[0] == "rewritten") == [
        ["rewritten", str(size), str(rank)] for size in (2, 3) for rank in range(size)
    ]
    left = sorted(line for line in said if line[0] == "left")
    assert [line[1:3] for line in left] == [["2", "0"], ["2", "1"]]
    assert all("the student cannot be rewritten and runs layer by layer: its gradients" in line[3] for line in left)
    captured = [line for line in said if line[0] == "uncaptured" and line[1] != "1"]
    assert len(captured) == 2 + 3 + 2
    for *_, sentence in captured:
        assert sentence == "the step cannot be captured in a CUDA graph and runs kernel by kernel: an accident"


def worker(rank: int, folder: Path) -> int:
    """The process of a rank that trains into a folder, once there is one."""
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
        time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by what Linux tells of them")
def test_torchrun_goes_on_after_a_killed_worker(runs: tuple[Path, list[list[str]]], tmp_path: Path) -> None:
    """From the checkpoint, and to the same bits as two processes that were let be; only the first one is heard."""
    command = [*TORCHRUN, *TRAIN, "--out", str(tmp_path)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        killed = worker(1, tmp_path)
        until(tmp_path / "teacher-0" / "checkpoints" / "last.safetensors")
        os.kill(killed, signal.SIGKILL)
        table, told = run.communicate(timeout=LONG)
    assert run.returncode == 0, told
    assert "resuming after step" in told
    assert "2 processes, data-parallel: all of them train each teacher together (as requested)" in told
    assert told.count("teacher 0 (1 of 1)") == 2, "of the first process, before and after"
    assert table.count("teacher-0") == 1

    one, other = (RunFolder(folder / "teacher-0") for folder in (runs[0] / "teachers", tmp_path))
    assert one.model.read_bytes() == other.model.read_bytes()
    expected, found = state(one.path), state(other.path)
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert lines(one.path) == lines(other.path)


def test_the_first_to_fail_speaks_and_ends_the_others() -> None:
    store = dist.HashStore()  # type: ignore[attr-defined]
    assert not failed(store)
    assert claim(store, 2)
    assert failed(store)
    assert not claim(store, 1)
    assert store.get(KEY) == b"2"
    asked_to_stop = dist.HashStore()  # type: ignore[attr-defined]
    assert claim(asked_to_stop, 130, end_others=False)
    assert not claim(asked_to_stop, 130, end_others=False)
    assert not failed(asked_to_stop), "the others have been asked, too, and write their checkpoints"


WATCHING = """
import sys, time
import torch.distributed as dist
from onefold.engine.distributed.failing import claim, watch
store = dist.HashStore()
watch(store)
claim(store, 7)
time.sleep(60)
"""


def test_who_waits_for_ever_is_ended() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHING], env=environment(), timeout=50, check=False)
    assert done.returncode == 7


LEAVING = """
import atexit, threading
atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))  # the last to be called
import torch.distributed as dist
from onefold.engine.distributed.failing import watch
watch(dist.HashStore())
"""


def test_the_watch_ends_before_python_does() -> None:
    """Else Python ends the thread while it asks the store, and with it the process: by SIGABRT, now and then."""
    done = subprocess.run(
        [sys.executable, "-c", LEAVING], env=environment(), timeout=50, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "['MainThread']\n")


LEFT = """
import pathlib
from onefold.engine.distributed import launch
launch.world_here().collected(0)
import torch._dynamo
launch.leave()
print(sum("gloo" in name.read_text() for name in pathlib.Path("/proc/self/task").glob("*/comm")))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not list threads")
def test_no_thread_of_the_group_is_left_when_python_ends() -> None:
    """Else it may ask for Python's lock after that is gone: SIGABRT, now and then."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    done = subprocess.run(
        [sys.executable, "-c", LEFT], env=environment() | alone, timeout=50, check=True, capture_output=True, text=True
    )
    assert done.stdout == "0\n"


def test_parts() -> None:
    part = Part((2, 3, 0), 1)
    assert (part.whole, part.first, part.rows, part.counted, part.share) == (5, 2, 3, 3, 0.6)
    empty = Part((2, 3, 0), 2)
    assert (empty.first, empty.rows, empty.counted, empty.share) == (0, 1, 0, 0.0)
    assert [p.counts for p in Part((5, 4), 0).pieces(3)] == [(2, 2), (2, 1), (1, 1)]
    assert [p.counts for p in Part((3, 2), 0).pieces(8)] == [(2, 1), (1, 1)]
    assert [p.counts for p in empty.pieces(4)] == [(2, 3, 0)]
    rows = torch.arange(7)
    assert [len(p) for p in rows.tensor_split(3)] == [p.counts[0] for p in Part((7, 8), 0).pieces(3)]


class Pretended(Processes):
    """One of some processes that all say the same."""

    def __init__(self, size: int) -> None:
        super().__init__(0, size, 0, dist.HashStore(), None)  # type: ignore[attr-defined]

    def collected(self, value: Any) -> list[Any]:
        return [value] * self.size


def test_a_step_is_captured_for_what_all_processes_know() -> None:
    """The parts of the batch; where only their owners know them, their shapes as well."""
    world, y = Pretended(2), torch.zeros(3)
    keys = []
    for shape, counts in (((3, 4), (3, 2)), ((3, 5), (3, 2)), ((3, 4), (3, 3)), ((3, 4), None), ((3, 5), None)):
        x, y = world.take(torch.zeros(shape), y, counts)
        keys.append(world.batch_key(x, y))
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4
    assert ALONE.batch_key(torch.zeros(3, 4), y) != ALONE.batch_key(torch.zeros(3, 5), y)


def test_another_shape_than_the_captured_one_is_refused() -> None:
    """Whoever took a step without a graph would leave the others, who replay theirs, with other collectives."""
    world, x, y = Pretended(2), torch.zeros(3, 4), torch.zeros(3)
    step = CapturedStep(cast(Any, None), [], cast(Any, None), True, print, world)
    world.take(x, y, (3, 2))
    step.graphs[world.batch_key(x, y)] = Graph(cast(Any, None), torch.zeros(3, 5), y, y, [])
    with pytest.raises(
        ValueError, match=r"expected batches of one shape and type over several processes, got \[3, 5\]"
    ):
        step(x, y)


@pytest.mark.parametrize(
    ("mode", "members", "size", "apart"),
    [
        ("auto", 4, 2, True),
        ("auto", 2, 2, True),
        ("auto", 1, 2, False),
        ("data", 4, 2, False),
        ("members", 1, 2, True),
        ("members", 4, 1, False),
    ],
)
def test_who_trains_which_teacher(mode: str, members: int, size: int, apart: bool) -> None:
    found, sentence = by_members(mode, list(range(members)), Pretended(size))
    assert found == apart
    assert ("member-parallel" in sentence) == apart
    assert bool(sentence) == (size > 1)


def test_teachers_are_spread_where_they_do_not_fit() -> None:
    cpu = torch.device("cpu")
    assert spreads("auto", 4, 1000, cpu, Pretended(2))[0] is False
    spread, sentence = spreads("auto", 5, 2**50, cpu, Pretended(2))
    assert spread is True
    assert "teachers: spread, at most 3 of 5 in each" in sentence
    assert spreads("replicated", 4, 2**50, cpu, Pretended(2))[0] is False
    assert spreads("spread", 4, 1000, cpu, Pretended(2))[0] is True
    assert spreads("spread", 4, 1000, cpu, Pretended(1)) == (False, "")
