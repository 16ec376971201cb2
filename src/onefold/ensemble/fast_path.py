"""Torch's transformer blocks have an inference path that reads their layers' weights; a student has to do without."""

from __future__ import annotations

from typing import Any

from torch import nn

# An attribute that each block looks at before taking the path, and the value that makes it stay off.
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
