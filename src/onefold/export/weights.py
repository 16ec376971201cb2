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
from onefold.types import logits_in

INCLUDED = "onnx and torch-export include these steps"


def weights_bytes(found: Deployed) -> tuple[bytes, list[str]]:
    """The file, after loading it into the network and comparing the outputs."""
    tensors, _ = pack(dict(found.weights.state_dict()))
    header = {"format": "pt", "onefold": json.dumps(header_of(found))}
    content = safetensors.torch.save({name.removeprefix("/"): t for name, t in tensors.items()}, header)
    again = copy.deepcopy(found.weights)
    again.load_state_dict(safetensors.torch.load(content))
    with torch.no_grad():
        expected = logits_in(found.weights(found.example))
    told = check_agreement(expected, lambda x: logits_in(again(x)), found.example, "the weights file")
    return content, [*(note for note in [still_to_do(found)] if note), told]


def header_of(found: Deployed) -> dict[str, Any]:
    """The facts about the weights alone."""
    return found.facts if found.ordinary else found.facts | {"calibrated": False, "output": still_to_do(found)}


def still_to_do(found: Deployed) -> str:
    """A sentence on what remains to be done with the outputs of a network with these weights; empty if nothing."""
    if found.ordinary:
        return ""
    temperature = found.facts["temperature"] if found.facts["calibrated"] else None
    divide = "" if temperature is None else f"divide by the temperature {temperature:.6g}"
    then = f", take the logarithm, and {divide}" if divide else " and take the logarithm"
    if found.facts["networks"] > 1:
        return (
            f"these are the weights of {found.facts['networks']} networks; to predict, average their softmax "
            f"outputs{then}; {INCLUDED}"
        )
    if found.facts["method"] == "proxy-end2":
        return f"to predict, compute the mean of a Dirichlet, (e^z + 1) / sum (e^z + 1){then}; {INCLUDED}"
    return f"the network does not end in a linear layer that could include the temperature; {divide or 'it has none'}"
