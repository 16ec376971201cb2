"""Nested state as named tensors and JSON, so that a checkpoint can hold it without pickle."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

PINNED = 1 << 30  # bytes
Scalar = None | bool | int | float | str


def pack(tree: Any) -> tuple[dict[str, Tensor], Any]:
    """Splits nested state into its tensors by path, copied to the CPU, and a JSON-compatible rest.

    JSON has no tuples and only string keys, so the rest records the type of each container and stores dicts as pairs.
    """
    tensors, rest = apart(tree, "")
    return dict(zip(tensors, on_host(list(tensors.values())), strict=True)), rest


@torch.no_grad()
def on_host(tensors: list[Tensor]) -> list[Tensor]:
    """Contiguous copies on the CPU, because training goes on and tied weights share memory; from a GPU, one transfer
    per dtype."""
    places: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for k, tensor in enumerate(tensors):
        places.setdefault((tensor.device, tensor.dtype), []).append(k)
    copies = [torch.empty(0)] * len(tensors)
    for (device, _), chosen in places.items():
        if device.type == "cpu":
            for k in chosen:
                copies[k] = tensors[k].detach().clone(memory_format=torch.contiguous_format)
            continue
        together = brought(torch.cat([tensors[k].detach().reshape(-1) for k in chosen]))
        for k, part in zip(chosen, together.split([tensors[k].numel() for k in chosen]), strict=True):
            copies[k] = part.view(tensors[k].shape)
    return copies


def brought(x: Tensor) -> Tensor:
    """Copies from a GPU into pinned memory, which torch caches for the next time. Large tensors go to pageable memory:
    pinned memory is withheld from the whole system."""
    pinned = x.is_cuda and x.nbytes <= PINNED
    return torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x) if pinned else x.cpu()


def apart(tree: Any, name: str) -> tuple[dict[str, Tensor], Any]:
    if isinstance(tree, Tensor):
        return {name: tree}, {"tensor": name}
    if isinstance(tree, dict | list | tuple):
        kind = next(k for k in (dict, list, tuple) if isinstance(tree, k))
        entries = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree))
        tensors: dict[str, Tensor] = {}
        packed = []
        for key, value in entries:
            if not isinstance(key, Scalar):
                raise ValueError(f"{name}: expected state with plain keys, got {type(key).__name__}")
            inner, rest = apart(value, f"{name}/{key}")
            tensors |= inner
            packed.append([key, rest] if kind is dict else rest)
        return tensors, {kind.__name__: packed}
    if isinstance(tree, Scalar):
        return {}, {"value": tree}
    raise ValueError(
        f"{name}: expected state made of tensors, numbers, strings and containers of them, which can be stored "
        f"without pickle, got {type(tree).__name__}"
    )


def unpack(tensors: dict[str, Tensor], packed: Any) -> Any:
    """The inverse of `pack`."""
    ((kind, content),) = packed.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "value":
        return content
    if kind == "dict":
        return {key: unpack(tensors, value) for key, value in content}
    values = [unpack(tensors, value) for value in content]
    return tuple(values) if kind == "tuple" else values


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """The states of torch's default random generators on the CPU and the device."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_generator_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
