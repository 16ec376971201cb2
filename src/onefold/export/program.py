"""A program that torch runs without the network's source: `torch.export.load(FILE).module()(x)`."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from onefold.export.agree import check_agreement
from onefold.run import FACTS
from onefold.types import logits_in

LONG = 200  # characters that we show of messages from torch's tracer, which can be pages


class Traced(NamedTuple):
    """A program, inputs for it, the network's outputs for these, and notes for the user."""

    program: ExportedProgram
    x: Tensor
    expected: Tensor
    notes: list[str]


class Logits(nn.Module):
    """A network that returns an output object, as one that returns a tensor."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = logits_in(self.net(x))
        return logits


def traced(module: nn.Module, example: Tensor, batch: int | None = None) -> Traced:
    """The program of a network for batches of any size, or of size `batch`. If the network cannot be exported for any
    size, the program takes one example at a time, with a note that says so."""
    notes: list[str] = []
    with quiet(), torch.no_grad():
        if not isinstance(module(example), Tensor):
            module = Logits(module)
        if batch is None:
            try:
                free = torch.export.export(module, (example,), dynamic_shapes=({0: Dim("batch")},))
                for size in {1, 2, len(example)}:
                    check_agreement(module(example[:size]), free.module(), example[:size], "the exported program")
                return Traced(for_serving(free), example, module(example), notes)
            except Exception as error:  # networks can depend on the batch size in many ways
                batch = 1
                why = f"exporting it for any batch size failed: {first_line(error)}"
                notes.append(f"the program takes one example at a time, because {why}")
        x = example[torch.arange(batch) % len(example)]
        try:
            return Traced(for_serving(torch.export.export(module, (x,))), x, module(x), notes)
        except Exception as error:
            reason = (str(error).strip().split("\n") or [""])[0] or type(error).__name__
            raise ValueError(
                f"export: the network cannot be traced: {reason[:300]}; use --format safetensors"
            ) from error


def for_serving(program: ExportedProgram) -> ExportedProgram:
    """Its outputs need no gradients, so that they keep no memory and numpy takes them. Private traces of where it was
    made are removed: the example inputs, and paths and lines of source files."""
    for name, value in program.state_dict.items():
        if isinstance(value, nn.Parameter):  # a new one, since this may be that of a user's network
            program.state_dict[name] = nn.Parameter(value.detach(), requires_grad=False)
    program.example_inputs = None
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)
    return program


def program_bytes(found: Traced, facts: dict[str, Any]) -> tuple[bytes, list[str]]:
    """The file of a program with the facts beside it, after reading it back and comparing its outputs."""
    file = io.BytesIO()
    with quiet():
        torch.export.save(found.program, file, extra_files={FACTS: json.dumps(facts)})
        again: Callable[[Tensor], Tensor] = torch.export.load(io.BytesIO(file.getvalue())).module()
        told = check_agreement(found.expected, again, found.x, "the exported program")
    return file.getvalue(), [*found.notes, told]


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:LONG] or type(error).__name__


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Ignores the warnings of torch's tracer, which are about its internals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
