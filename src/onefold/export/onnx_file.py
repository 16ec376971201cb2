"""ONNX files, for ONNX Runtime, TensorRT, OpenVINO and others."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import torch
from torch import Tensor

from onefold.export.agree import check_agreement
from onefold.export.program import Traced, quiet
from onefold.install import install

INPUT, OUTPUT, BATCH = "x", "logits", "batch"
MOST = 1_900_000_000  # bytes of weights: a single file is limited to two gigabytes


def check_onnx() -> None:
    """Refuses missing packages before anything is done."""
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        command = install("onnx", "onnxscript", "onnxruntime")
        raise ValueError(f"format: onnx needs {' and '.join(missing)}; run: {command}")


def onnx_bytes(found: Traced, facts: dict[str, Any]) -> tuple[bytes, list[str]]:
    """The file, with one input `x`, one output `logits`, and the facts as metadata; checked with ONNX Runtime if that
    is installed."""
    size = sum(t.numel() * t.element_size() for t in found.program.state_dict.values())
    if size > MOST:
        raise ValueError(f"format: the weights take {size / 1e9:.1f} GB, an ONNX file at most 2; use torch-export")
    with quiet():
        exported = torch.onnx.export(found.program, input_names=[INPUT], output_names=[OUTPUT], verbose=False)
        assert exported is not None
        model = exported.model_proto
    free = {d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim if d.dim_param}
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param in free:
                dimension.dim_param = BATCH
    for name, fact in facts.items():
        model.metadata_props.add(key=f"onefold.{name}", value=fact if isinstance(fact, str) else json.dumps(fact))
    content: bytes = model.SerializeToString()
    if importlib.util.find_spec("onnxruntime") is None:
        return content, [*found.notes, "the ONNX model was not checked, because onnxruntime is not installed"]
    return content, [*found.notes, check_agreement(found.expected, Runtime(content), found.x, "the ONNX model")]


class Runtime:
    """ONNX Runtime on the CPU."""

    def __init__(self, content: bytes) -> None:
        import onnxruntime

        self.session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def __call__(self, x: Tensor) -> Tensor:
        return torch.from_numpy(self.session.run([OUTPUT], {INPUT: x.numpy()})[0])
