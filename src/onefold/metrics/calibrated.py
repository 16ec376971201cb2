"""Makes the temperature part of a network, so that the exported model is calibrated."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import warnings
from dataclasses import is_dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onefold.metrics.calibration import check_temperature
from onefold.metrics.ensemble import log_mean_probabilities
from onefold.types import Ensemble, Prediction, logits_in

# Final layers that, in evaluation mode, commute with multiplying by a constant.
_CHANGES_NOTHING = (nn.Identity, nn.Dropout, nn.Flatten)


class Calibrated(nn.Module):
    """Divides a network's logits, or the prediction made from them, by a temperature kept in the state dict: maps
    `[B, ...]` to `[B, K]`."""

    temperature: Tensor

    def __init__(self, model: nn.Module, temperature: float, predict: Prediction | None = None) -> None:
        super().__init__()
        self.model, self.predict, self.has_members = model, predict, isinstance(model, Ensemble)
        place = next((t.device for t in [*model.parameters(), *model.buffers()]), None)
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float32, device=place))
        self.train(model.training)

    def forward(self, x: Tensor) -> Tensor:
        """The logits divided by the temperature."""
        logits = logits_in(self.model(x))
        if not isinstance(logits, Tensor):
            raise ValueError(f"model: expected a network that returns a tensor, got {type(logits).__name__}")
        if self.predict is not None:
            logits = self.predict(logits if self.has_members else logits[None])
        return logits / self.temperature


def calibrated(
    model: nn.Module,
    temperature: float | None,
    example: Tensor | None = None,
    *,
    predict: Prediction | None = None,
) -> nn.Module:
    """A copy of a model that returns logits / T `[B, K]`; the model itself is left unchanged.

    For teachers and batch ensembles the logits are the log of the members' mean softmax, to which their temperature is
    fitted; `predict` is for models that predict in another way, as in `onefold.evaluate`.

    If a network's output is certain to be that of its last `nn.Linear`, that layer's weight and bias are divided by T,
    and the copy has the model's class and state dict keys. It is certain if a symbolic trace of the forward pass shows
    it or, for a network that cannot be traced, if on the `example` (a batch of inputs) the network returns the very
    tensor object that the layer produced. Otherwise the copy is wrapped in a `Calibrated`, which divides. With an
    example, the folded network's logits are also compared with the model's.
    """
    given: object = model
    if not isinstance(given, nn.Module):
        several = "; give onefold.Teachers(networks)" if isinstance(given, list | tuple) else ""
        raise ValueError(f"model: expected a network, Teachers or a result, got {type(given).__name__}{several}")
    temperature = check_temperature(temperature)
    if predict is None and isinstance(model, Ensemble):
        predict = log_mean_probabilities
    if predict is not None:
        return Calibrated(copy.deepcopy(model), temperature, predict)
    # Inspect a copy in evaluation mode: a forward pass may modify the network, and calibration is for inference.
    probe = copy.deepcopy(model).eval()
    name = _last_linear(probe, example)
    if name is not None:
        folded = copy.deepcopy(model)
        layer, original = folded.get_submodule(name), model.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        assert isinstance(original, nn.Linear)
        own = layer.weight.data_ptr() != original.weight.data_ptr()  # a `__deepcopy__` may return the layer itself
        if own and _divide(layer, temperature) and (example is None or _agree(model, folded, temperature, example)):
            return folded
    return Calibrated(copy.deepcopy(model), temperature)


@torch.no_grad()
def _divide(layer: nn.Linear, temperature: float) -> bool:
    """Divides the layer by T; returns whether its dtype can represent the result, since half precision may overflow."""
    held = True
    for parameter in layer.parameters():
        before = parameter.cpu().double()
        parameter.div_(temperature)
        error = (parameter.cpu().double() * temperature - before).abs().max()
        held &= bool(error <= 4 * torch.finfo(parameter.dtype).eps * before.abs().max())
    return held


def _agree(model: nn.Module, folded: nn.Module, temperature: float, example: Tensor) -> bool:
    """Whether the folded network returns logits / T, to within the square root of its dtype's epsilon."""
    with torch.no_grad():
        expected = logits_in(copy.deepcopy(model).eval()(example)) / temperature
        actual = logits_in(copy.deepcopy(folded).eval()(example))
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    return torch.allclose(actual, expected, rtol=0.0, atol=math.sqrt(torch.finfo(expected.dtype).eps) * scale)


def _last_linear(model: nn.Module, example: Tensor | None) -> str | None:
    """The name of the linear layer whose output is certain to be the model's, or None. May modify the model."""
    if _linear(model):
        name: str | None = ""
    else:
        traced, name = _traced(model)
        if not traced and example is not None:
            name = _observed(model, example)
    if name is None or not _plain(model, model.get_submodule(name)):
        return None
    return name


class Tracer(torch.fx.Tracer):
    """Traces only into modules that contain a linear layer: what the others compute does not matter here."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.linear = {m for m in model.modules() if _linear(m)}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        inside = any(isinstance(c, nn.Linear) for c in m.modules())
        return super().is_leaf_module(m, module_qualified_name) or not inside or m in self.linear


def _linear(module: nn.Module) -> bool:
    """Whether it is an `nn.Linear`, or a subclass that does the same in evaluation mode, as a trace shows."""
    if type(module) is nn.Linear or not isinstance(module, nn.Linear):
        return type(module) is nn.Linear
    try:
        steps = [(node.op, node.target) for node in torch.fx.Tracer().trace(module).nodes]
    except Exception:  # a forward pass given a proxy may raise anything
        return False
    held = [("get_attr", name) for name in ("weight", "bias") if getattr(module, name) is not None]
    return steps[1:] == [*held, ("call_function", F.linear), ("output", "output")]


def _traced(model: nn.Module) -> tuple[bool, str | None]:
    """Whether the forward pass can be traced, and the name of the linear layer it ends with."""
    # A trace of the model would miss its own hooks and an overridden forward.
    if _hooked(model):
        return False, None
    root = copy.deepcopy(model)  # tracing may leave proxies in its attributes
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Fix all defaults, as if called with the inputs alone; otherwise each would become a proxy.
            parameters = inspect.signature(root.forward).parameters.values()
            defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
            graph = Tracer(root).trace(root, concrete_args=defaults)
    except Exception:  # a forward pass given a proxy may raise anything
        return False, None
    (answer,) = next(node for node in graph.nodes if node.op == "output").args
    if not isinstance(answer, torch.fx.Node) or is_dataclass(answer.target):  # an output object
        return False, None
    while isinstance(answer, torch.fx.Node) and answer.op == "call_module" and len(answer.users) == 1:
        layer = root.get_submodule(str(answer.target))
        if type(layer) not in _CHANGES_NOTHING or _hooked(layer):
            break
        answer = answer.args[0] if answer.args else None
    else:  # not a module's output, or one with a second user, which may modify it in place
        return True, None
    memory = {p.untyped_storage().data_ptr() for p in layer.parameters()}
    calls = [n for n in graph.nodes if n.op == "call_module" and root.get_submodule(str(n.target)) is layer]
    reads = [_attribute(root, str(n.target)) for n in graph.nodes if n.op == "get_attr"]
    shared = any(isinstance(t, Tensor) and t.untyped_storage().data_ptr() in memory for t in reads)
    return True, str(answer.target) if len(calls) == 1 and not shared else None


def _hooked(module: nn.Module) -> bool:
    """Whether calling the module does more than run its class's forward."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _attribute(model: nn.Module, path: str) -> object:
    return functools.reduce(getattr, path.split("."), model)


def _observed(model: nn.Module, example: Tensor) -> str | None:
    """The linear layer that, called exactly once on the example, produced the very tensor the model returns."""
    outputs: dict[str, list[tuple[Tensor, int]]] = {}
    layers = {name: m for name, m in model.named_modules() if _linear(m)}
    handles = []
    for name, layer in layers.items():

        def keep(_: nn.Module, __: object, output: Tensor, name: str = name) -> None:
            outputs.setdefault(name, []).append((output, output._version))

        handles.append(layer.register_forward_hook(keep))
    try:
        with torch.no_grad():
            answer = logits_in(model(example))
    finally:
        for handle in handles:
            handle.remove()
    for name, calls in outputs.items():
        if any(output is answer for output, _ in calls):
            untouched = calls[-1][0]._version == calls[-1][1]
            return name if len(calls) == 1 and untouched else None
    return None


def _plain(model: nn.Module, layer: nn.Module) -> bool:
    """Whether the layer is a plain linear layer that shares its weights with nothing else."""
    if not _linear(layer) or _hooked(layer):
        return False
    own = dict(layer.named_parameters())
    if not own or any(not p.is_floating_point() for p in own.values()) or set(own) - {"weight", "bias"}:
        return False
    memory = {p.untyped_storage().data_ptr() for p in own.values()}
    if len(memory) != len(own):
        return False
    others = (
        t
        for module in model.modules()
        if module is not layer
        for t in (*module._parameters.values(), *module._buffers.values())
        if t is not None
    )
    return not any(t.untyped_storage().data_ptr() in memory for t in others)
