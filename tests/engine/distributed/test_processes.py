"""Which errors of a collective say that another process has ended."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from onefold.engine.distributed import Lost
from onefold.engine.distributed.processes import collective

TCP = "/pytorch/third_party/gloo/gloo/transport/tcp"


def failing(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        # What gloo said of a neighbour that was killed, or that left, or that did not come.
        RuntimeError(f"[{TCP}/pair.cc:561] Connection closed by peer [127.0.0.1]:42418. This is typically caused by a"),
        RuntimeError(f"[{TCP}/pair.cc:589] Read error [192.168.70.92]:25266: Connection reset by peer"),
        RuntimeError(f"[{TCP}/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete"),
        RuntimeError(f"Gloo connectFullMesh failed with [{TCP}/pair.cc:144] no error"),
        RuntimeError("Connection reset by peer"),
        RuntimeError("Broken pipe"),
        # NCCL's, and those of the store in which it finds the others.
        dist.DistBackendError("NCCL error in: NCCLUtils.cpp:328, remote process exited or there was a network error"),
        dist.DistNetworkError("failed to recv, got 0 bytes"),
        dist.DistStoreError("Socket Timeout"),
        dist.DistError(),
    ],
)
def test_a_neighbour_that_is_gone(error: RuntimeError) -> None:
    with pytest.raises(Lost, match=r"^another process has ended ") as caught:
        collective(failing, error)
    assert str(error) in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
        RuntimeError("No backend type associated with device type cuda"),
        RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA"),
        RuntimeError(f"[enforce fail at {TCP}/pair.cc:456] op.preamble.length <= op.nbytes. 32 vs 16"),
        RuntimeError("output tensor size must be equal to world_size times input tensor size"),
        RuntimeError(""),
        ValueError("Invalid rank"),
    ],
)
def test_errors_of_this_process_are_its_own(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        collective(failing, error)
    assert caught.value is error
