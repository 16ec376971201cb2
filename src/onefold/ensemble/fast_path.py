"""Switches off the inference fast path of torch's transformer blocks, which reads weights and so bypasses factors."""

from __future__ import annotations

from typing import Any

from torch import nn

# For each block, an attribute it checks before taking the fast path, and the value that keeps it off.
SWITCHES: dict[type[nn.Module], tuple[str, Any]] = {
    nn.TransformerEncoderLayer: ("activation_relu_or_gelu", 0),
    nn.TransformerEncoder: ("use_nested_tensor", False),
}
SAVED = "_fast_path_before"


def turn_off(net: nn.Module) -> None:
    for module in net.modules():
        for cls, (attribute, off) in SWITCHES.items():
            if isinstance(module, cls) and hasattr(module, attribute) and SAVED not in module.__dict__:
                setattr(module, SAVED, getattr(module, attribute))
                setattr(module, attribute, off)


def give_back(net: nn.Module) -> None:
    for module in net.modules():
        for cls, (attribute, _) in SWITCHES.items():
            if isinstance(module, cls) and SAVED in module.__dict__:
                setattr(module, attribute, module.__dict__.pop(SAVED))
