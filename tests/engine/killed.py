"""Runs one small training in children that are killed again and again; started by test_killed.py.

    python killed.py FOLDER SEED

Children are forked before anything was computed: the libraries are loaded once. Prints how each of them ended.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # optimizers load it, which takes seconds: here once, and not in every child
from torch import nn

from onefold import Teachers
from onefold.data import Arrays, CropFlip
from onefold.engine import Job, Settings, conduct
from onefold.methods import method_named, perturbation_named
from onefold.recipe import OptimRecipe
from onefold.run import RunFolder

WAYS = ["later", "half", "unsynced", "forgotten", "unnamed"]
ATTEMPTS = 100


def network() -> nn.Module:
    features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.1))
    return nn.Sequential(features, nn.Flatten(), nn.Linear(16, 3))


def train(folder: Path, minutes: float) -> None:
    """Everything that has state: momenta, an average, statistics, dropout, perturbation, augmentation, best epochs."""
    torch.manual_seed(0)
    teachers = Teachers([network(), network()])
    splits = [Arrays(torch.randint(256, (n, 1, 4, 4), dtype=torch.uint8), torch.randint(3, (n,))) for n in (60, 40, 20)]
    job = Job(
        method=method_named("latentbe"),
        perturbation=perturbation_named("tdiv-sdiv"),
        net=network(),
        teachers=teachers,
        train=splits[0],
        val=splits[1],
        test=splits[2],
        settings=Settings(
            epochs=10, optim=OptimRecipe(batch_size=16, warmup_epochs=1, ema=0.9), log_every=3, minutes=minutes
        ),
        device=torch.device("cpu"),
        augment=CropFlip(1),
    )
    conduct(job, RunFolder(folder), {"recipe": 1})


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(module: Any, name: str, number: int, before: Callable[..., None]) -> None:
    """The `number`-th call of a function of the system is preceded by something."""
    function, calls = getattr(module, name), [0]

    def called(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            before(*arguments)
        return function(*arguments, **options)

    setattr(module, name, called)


def half_written(descriptor: int) -> None:
    """The disk got half of it. (Of a log that is added to, it keeps what it had.)"""
    added_to = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
    if stat.S_ISREG(os.fstat(descriptor).st_mode) and not added_to:
        os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
    die()


def attempt(folder: Path, how: str, seconds: float, draws: random.Random) -> str:
    """One child, and how it ended; an undisturbed one takes so many seconds."""
    number, delay, minutes = draws.randint(1, 10), draws.uniform(0, 0.8 * seconds), draws.choice([0.0, 10.0])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if how == "half":
                at_call(os, "fsync", number, half_written)
            elif how == "unsynced":
                at_call(os, "fsync", number, lambda *_: die())
            elif how == "unnamed":
                at_call(os, "replace", number, lambda *_: die())
            elif how == "forgotten":  # a checkpoint is there and the weights it replaces are not cleared away yet
                at_call(Path, "unlink", 1 + number // 3, lambda *_: die())
            train(folder, minutes)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if how == "later":
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return how if code == -signal.SIGKILL else "finished" if code == 0 else "failed"


def main(folder: Path, seed: int) -> None:
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        train(folder / "undisturbed", minutes=10.0)
        os._exit(0)
    print("undisturbed", os.waitpid(child, 0)[1])
    seconds = time.monotonic() - begin
    draws = random.Random(seed)
    for name in ("killed-0", "killed-1", "killed-2"):
        for number in range(ATTEMPTS):
            if not (folder / name / "result.json").exists():
                print(attempt(folder / name, WAYS[number % len(WAYS)], seconds, draws))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
