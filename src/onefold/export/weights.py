"""safetensors files: the weights under the network's own keys, with the facts in the header."""

from __future__ import annotations

import copy
import json
from typing import Any

import safetensors.torch
import torch

from onefold.engine.keeping.pack import pack
from onefold.export.agree import check_agreement
from onefold.export.deployed import Deployed


def weights_bytes(found: Deployed) -> tuple[bytes, list[str]]:
    """The file, after loading it into the network and comparing the outputs."""
    tensors, _ = pack(dict(found.weights.state_dict()))
    header = {"format": "pt", "onefold": json.dumps(header_of(found))}
    content = safetensors.torch.save({name.removeprefix("/"): t for name, t in tensors.items()}, header)
    again = copy.deepcopy(found.weights)
    again.load_state_dict(safetensors.torch.load(content))
    with torch.no_grad():
        told = check_agreement(found.weights(found.example), again, found.example, "the file of weights")
    return content, [*(note for note in [still_to_do(found)] if note), told]


def header_of(found: Deployed) -> dict[str, Any]:
    return found.facts | {"calibrated": found.facts["calibrated"] and found.ordinary}


def still_to_do(found: Deployed) -> str:
    """A sentence on what remains to be done with the outputs of a network with these weights; empty if nothing."""
    if found.ordinary:
        return ""
    temperature = found.facts["temperature"] if found.facts["calibrated"] else None
    divide = f"; divide by the temperature {temperature:.6g}" if temperature is not None else ""
    if found.facts["networks"] > 1:
        return (
            f"these are the weights of {found.facts['networks']} networks that answer together: the prediction is the "
            f"mean of their softmax, taken in log{divide}; onnx and torch-export have that inside"
        )
    if found.facts["method"] == "proxy-end2":
        return (
            "the prediction is the mean of a Dirichlet, (e^z + 1) / sum (e^z + 1), taken in log"
            f"{divide}; onnx and torch-export have that inside"
        )
    return f"the network does not end in a linear layer that could hold the temperature{divide or '; it has none'}"
