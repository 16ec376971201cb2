"""The engine on a GPU; skipped where there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from onefold.engine import Job, conduct
from onefold.engine.keeping import pack as packing
from onefold.engine.keeping.pack import pack
from onefold.engine.training import prepare
from onefold.methods import METHODS
from onefold.run import RunFolder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
]
CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    """The same kernels each time."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    yield
    torch.backends.cudnn.deterministic = before
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_every_method_ends_near_its_result_on_the_host(name: str, precision: str, make_job: Any) -> None:
    job: Job = make_job(name, "none", precision=precision)
    on_device, on_host = conduct(dataclasses.replace(job, device=CUDA)), conduct(job)
    assert next(on_device.model.parameters()).device.type == "cuda"
    assert on_device.metrics["nll"] == pytest.approx(on_host.metrics["nll"], abs=0.01)
    if job.teachers is not None:
        assert next(job.teachers.parameters()).device.type == "cpu"  # back where they were


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_step_waits_for_nothing(precision: str, make_job: Any) -> None:
    job: Job = make_job(device=CUDA, precision=precision, ema=0.9, clip=1.0, accumulate=2)
    assert job.teachers is not None
    job.teachers.to(CUDA)
    training = prepare(job)
    batches = list(training.train.batches(0))
    training.step(*batches[0])  # libraries load
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    for number, (x, labels) in enumerate(batches):
        training.schedule.before(number)
        training.step(x, labels)


def test_a_run_goes_on_with_the_device_s_random_numbers(make_job: Any, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    class Stopper:
        def update(self, done: int, *_: float) -> None:
            if done == 7:
                raise Stop

        def message(self, text: str) -> None:
            pass

    straight = conduct(make_job(device=CUDA, log_every=1))
    with pytest.raises(Stop):
        conduct(make_job(device=CUDA, log_every=1, minutes=0.0), RunFolder(tmp_path), progress=Stopper())
    resumed = conduct(make_job(device=CUDA, log_every=1, minutes=0.0), RunFolder(tmp_path))
    for name, value in straight.model.state_dict().items():
        torch.testing.assert_close(value, resumed.model.state_dict()[name])


@pytest.mark.parametrize("pinned", [0, 1 << 30])
def test_what_is_packed_stays_as_it_was(pinned: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the next is packed while the one before is still being written."""
    monkeypatch.setattr(packing, "PINNED", pinned)
    x, y = torch.randn(1000, 7, device=CUDA).T, torch.arange(5, device=CUDA)
    kept = []
    for _ in range(3):
        kept.append((x.cpu(), y.cpu(), pack({"x": x, "y": (y, x[0])})[0]))
        x.add_(1)
        y.mul_(3)
    for a, b, tensors in kept:
        assert torch.equal(tensors["/x"], a)
        assert tensors["/x"].is_contiguous()
        assert torch.equal(tensors["/y/0"], b)
        assert torch.equal(tensors["/y/1"], a[0])
