"""Rounding of float32 products, asked for in either of torch's two ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import onefold
from onefold.engine import accelerate
from onefold.fast.tf32 import tf32
from onefold.models import wide_resnet

MATMUL: Any = torch.backends.cuda.matmul
CUDNN: Any = torch.backends.cudnn
CPU: Any = torch.backends.mkldnn


@pytest.fixture
def asked_the_new_way() -> Iterator[None]:
    before = MATMUL.fp32_precision, CUDNN.conv.fp32_precision
    MATMUL.fp32_precision = CUDNN.conv.fp32_precision = "tf32"
    yield
    MATMUL.fp32_precision, CUDNN.conv.fp32_precision = before


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_the_old_way(allowed: bool, enabled: bool) -> None:
    before = MATMUL.allow_tf32, CUDNN.allow_tf32
    MATMUL.allow_tf32 = CUDNN.allow_tf32 = allowed
    with tf32(enabled):
        assert (MATMUL.allow_tf32, CUDNN.allow_tf32) == (enabled, enabled)
    assert (MATMUL.allow_tf32, CUDNN.allow_tf32) == (allowed, allowed)
    MATMUL.allow_tf32, CUDNN.allow_tf32 = before


def settings() -> list[object]:
    parts = MATMUL, CUDNN.conv, CUDNN.rnn, CPU.matmul
    return [torch.get_float32_matmul_precision(), MATMUL.allow_tf32, *(part.fp32_precision for part in parts)]


@pytest.mark.parametrize("precision", [None, "highest", "high", "medium"])
@pytest.mark.parametrize("enabled", [False, True])
def test_precisions_set_for_all_devices(precision: str | None, enabled: bool) -> None:
    before = torch.get_float32_matmul_precision()
    if precision is not None:
        torch.set_float32_matmul_precision(precision)
    stood = settings()
    with tf32(enabled):
        assert torch.get_float32_matmul_precision() == ("high" if enabled else "highest")
        assert MATMUL.allow_tf32 is CUDNN.allow_tf32 is enabled
    assert settings() == stood
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("asked_the_new_way")
@pytest.mark.parametrize(("enabled", "inside"), [(False, "ieee"), (True, "tf32")])
def test_the_new_way(enabled: bool, inside: str) -> None:
    with pytest.raises(RuntimeError):
        _ = MATMUL.allow_tf32  # why there have to be two
    with tf32(enabled):
        assert (MATMUL.fp32_precision, CUDNN.conv.fp32_precision) == (inside, inside)
    assert (MATMUL.fp32_precision, CUDNN.conv.fp32_precision) == ("tf32", "tf32")


@pytest.mark.usefixtures("asked_the_new_way")
def test_networks_are_converted_and_folded_all_the_same() -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 3, 8, 8)
    onefold.batch_ensemble(wide_resnet(10, 1), 2, example=x)
    teachers = onefold.Teachers([wide_resnet(10, 1).eval() for _ in range(2)])
    said: list[str] = []
    fast = accelerate.fast_teachers(teachers, x, "float32", said.append)
    assert not said
    assert sum(isinstance(module, nn.Identity) for module in fast.modules()) > 0
