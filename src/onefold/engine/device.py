"""Devices, precision, and random state."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn


def device_named(name: str | torch.device) -> torch.device:
    """The device with this name; "auto" is a GPU if there is one."""
    cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device: expected auto, cpu, cuda or cuda:N, got {name!r}")
    if device.type == "cuda" and not cuda:
        raise ValueError(f"device: {name!r} was requested, but CUDA is not available here; use 'cpu' or 'auto'")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device: expected one of the {torch.cuda.device_count()} CUDA devices here, got {name!r}")
    return device


def precision_on(device: torch.device, wanted: str) -> str:
    """float32 or bf16; "auto" is bf16 on a GPU that supports it."""
    if wanted != "auto":
        return wanted
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False) else "float32"


@contextlib.contextmanager
def placed(module: nn.Module | None, device: torch.device) -> Iterator[None]:
    """Moves the module to the device inside, and back where it was on exit."""
    home = next((t.device for t in (*module.parameters(), *module.buffers())), None) if module is not None else None
    if module is None or home is None:
        yield
        return
    module.to(device)
    try:
        yield
    finally:
        module.to(home)


@contextlib.contextmanager
def current(device: torch.device) -> Iterator[None]:
    """Makes this the current CUDA device, on which streams and our own kernels are created by default."""
    if device.type != "cuda" or device.index is None:
        yield
        return
    with torch.cuda.device(device):
        yield


@contextlib.contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Restores torch's global random state on exit, so that it may be seeded and drawn from inside."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


@contextlib.contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Seeds torch, Python's `random` and NumPy inside, and restores all their global states on exit."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 -- users' code may draw from it
    try:
        with own_randomness(device):
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
