"""Takes steps from an empty cache and looks at who compiled the kernels: threads, before any of them was launched."""

from __future__ import annotations

import threading
from typing import Any

import torch
import triton

from onefold import Teachers
from onefold.data import Arrays, CropFlip
from onefold.engine import Job, Settings
from onefold.engine.capture import CapturedStep
from onefold.engine.training import prepare
from onefold.fast import ahead
from onefold.methods import METHODS, PERTURBATIONS
from onefold.models import wrn28
from onefold.recipe import OptimRecipe

compiled: list[tuple[str, str]] = []  # names of kernels, and of the threads that compiled them


def listen(*, src: Any, cache_hit: bool, **_: Any) -> None:
    if not cache_hit:
        compiled.append((src.name, threading.current_thread().name))


def main() -> None:
    triton.knobs.compilation.listener = listen
    torch.manual_seed(0)
    images = Arrays(torch.randint(0, 256, (128, 3, 32, 32), dtype=torch.uint8), torch.randint(0, 10, (128,)))
    device = torch.device("cuda")
    job = Job(
        method=METHODS["latentbe"],
        perturbation=PERTURBATIONS["tdiv-sdiv"],
        net=wrn28(1),
        teachers=Teachers([wrn28(1).eval() for _ in range(2)]).to(device),
        train=images,
        val=None,
        test=None,
        settings=Settings(epochs=1, optim=OptimRecipe(batch_size=64, warmup_epochs=0), precision="bf16"),
        device=device,
        augment=CropFlip(4),
    )
    training = prepare(job)
    training.student.train()
    for x, labels in training.train.batches(0):
        assert training.step(x, labels).isfinite()
    assert isinstance(training.step, CapturedStep)
    assert training.step.graphs, "the step was not captured"
    late = [name for name, thread in compiled if not thread.startswith(ahead.NAME) and name != "crop_kernel"]
    assert not late, f"compiled when they were launched: {late}"
    assert len(compiled) > 20, f"only {len(compiled)} kernels were compiled"
    print("all compiled ahead")


if __name__ == "__main__":
    main()
