from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from onefold.engine.networks.named import identity
from onefold.export.card import loading


@pytest.mark.parametrize(
    ("network", "library", "line"),
    [
        ("timm:resnet10t", "timm", "net = create_model('resnet10t', num_classes=3, in_chans=1)"),
        ("timm.models.resnet:resnet10t", "timm", "net = resnet10t(num_classes=3, in_chans=1)"),
        ("torchvision.models:resnet18", "torchvision", "net = resnet18(num_classes=3)"),
    ],
)
def test_the_code_on_the_card_makes_models_of_libraries(network: str, library: str, line: str) -> None:
    pytest.importorskip(library)
    channels = 1 if library == "timm" else 3
    about: dict[str, Any] = {"network": network, "classes": 3, "statistics": [[0.5] * channels, [0.2] * channels]}
    about |= {"image_size": [64, 64]} | identity(network)
    found: Any = SimpleNamespace(about=about, facts={})
    lines = loading(found)
    assert lines[-1] == line
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    assert names["net"](torch.rand(2, channels, 64, 64)).shape == (2, 3)
