"""Decides, before anything is changed, which layers of a network get factors and which stay shared by all members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import nn
from torch.nn.parameter import UninitializedParameter

from onefold.ensemble.layers import KINDS, kind_of
from onefold.ensemble.reads import Reads, weight_reads

ATTENTION = {"in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "bias_k", "bias_v"}
BATCH_NORMALISATION = nn.modules.batchnorm._BatchNorm
NORMALISATION = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm, nn.RMSNorm)


@dataclass(frozen=True)
class Layer:
    """One module that owns parameters, and what becomes of it.

    `converted` layers carry factors; `shared` ones are of a kind that cannot; `skipped` ones could, but were left
    shared for the reason given.
    """

    name: str
    kind: str
    parameters: int
    status: Literal["converted", "shared", "skipped"]
    reason: str = ""
    factors: int = 0


@dataclass(frozen=True)
class Report:
    """What `batch_ensemble` did to each layer. Tied parameters count once."""

    layers: tuple[Layer, ...] = field(default=())

    @property
    def converted(self) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.layers if layer.status == "converted")

    @property
    def shared(self) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.layers if layer.status == "shared")

    @property
    def skipped(self) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.layers if layer.status == "skipped")

    def __str__(self) -> str:
        lines = []
        for title, layers in (
            ("converted", self.converted),
            ("shared", self.shared),
            ("skipped", self.skipped),
        ):
            count, factors = sum(layer.parameters for layer in layers), sum(layer.factors for layer in layers)
            lines.append(
                f"{title}: {len(layers)} layers, {count:,} parameters" + f" + {factors:,} factors" * bool(factors)
            )
            lines += [
                f"  {layer.name or '(the network itself)'}  {layer.kind}  {layer.parameters:,}"
                + (f"  ({layer.reason})" if layer.reason else "")
                for layer in layers
            ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Decision:
    """What becomes of one module; `batch_dim` is the dimension in which a converted layer has the M * B examples."""

    module: nn.Module
    name: str
    reason: str  # why it stays shared; empty if it is converted
    batch_dim: int = 0


def decide(
    net: nn.Module,
    keep: Collection[str] = (),
    found: Mapping[str, str] | None = None,
    dims: Mapping[str, int] | None = None,
) -> list[Decision]:
    """A decision for every layer of a convertible kind.

    `keep` names layers, or modules that contain them, to leave shared. `found` and `dims` come from running the network
    on an example: reasons not to convert a layer, and its batch dimension.
    """
    names = {id(module): name for name, module in net.named_modules()}
    check_keep(keep, names.values())
    for name, parameter in net.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            raise ValueError(f"net: parameter '{name}' is not initialised; run the network once on an example first")
    reasons: dict[int, str] = {}
    candidates = {id(m): m for m in net.modules() if kind_of(m) is not None}
    for key, module in candidates.items():
        kept = next((k for k in keep if names[key] == k or names[key].startswith(k + ".")), None)
        reasons[key] = f"kept by request ('{kept}')" if kept is not None else own_reason(module)
    for key, reason in read_reasons(net, guess=found is None).items():
        reasons[key] = reasons.get(key) or reason
    for name, reason in (found or {}).items():
        reasons[id(net.get_submodule(name))] = reason
    spread_over_attention(candidates, reasons)
    spread_over_ties(net, names, candidates, reasons)
    seq_first = sequence_first(net)
    return [
        Decision(m, names[k], reasons[k], (dims or {}).get(names[k], 1 if k in seq_first else 0))
        for k, m in candidates.items()
    ]


def check_keep(keep: Collection[str], names: Collection[str]) -> None:
    if isinstance(keep, str):
        raise ValueError(f"keep: expected a list of layer names, got the string '{keep}'")
    for name in keep:
        if name == "" or name not in names:
            raise ValueError(f"keep: the network has no module '{name}'")


def own_reason(module: nn.Module) -> str:
    """Why the module itself cannot be converted; empty if it can."""
    base = kind_of(module)
    assert base is not None
    cls = type(module)
    for method in (*KINDS[base][1], "__call__", "__getattr__"):
        if getattr(cls, method) is not getattr(base, method) or method in module.__dict__:
            return f"{cls.__name__} changes {base.__name__}.{method}, so its weight may mean something else"
    known = ATTENTION if base is nn.MultiheadAttention else {"weight", "bias"}
    needed = {name for name in known if name.endswith("weight")}
    if any(hasattr(cls, name) or name not in module._parameters for name in needed):
        return "its weight is computed from other parameters"
    if base is not nn.MultiheadAttention and module._parameters["weight"] is None:
        return "it has no weight"
    for name, parameter in module._parameters.items():
        if name not in known:
            return f"it carries a parameter '{name}' that {base.__name__} does not know"
        if parameter is not None and type(parameter) is not nn.Parameter:
            return f"its {name} is a {type(parameter).__name__}"
        if parameter is not None and "weight" in name and not parameter.is_floating_point():
            return f"its {name} is {parameter.dtype}"
        if parameter is not None and "weight" in name and not parameter.requires_grad:
            return "it is frozen"
    return ""


def read_reasons(net: nn.Module, guess: bool) -> dict[int, str]:
    """Layers whose weight some module's code reads without calling them.

    If the code does not show which layer is read, `guess` suspects every candidate; with an example there is no need to
    guess, because the conversion is verified by running it.
    """
    reasons: dict[int, str] = {}
    known: dict[object, Reads] = {}
    for module in net.modules():
        reads = weight_reads(module, known)
        who = f"{type(module).__name__} reads its weight without calling it"
        for name, below in module.named_modules():
            if kind_of(below) is None or below is module:
                continue
            if name.rpartition(".")[2] in reads.names or (
                guess and reads.untraced and through_containers(module, name)
            ):
                reasons[id(below)] = who
    return reasons


def through_containers(module: nn.Module, name: str) -> bool:
    """Whether only containers lie between a module and its descendant of that name."""
    *between, _ = name.split(".")
    path = [module.get_submodule(".".join(between[: i + 1])) for i in range(len(between))]
    return all(isinstance(m, (nn.Sequential, nn.ModuleList, nn.ModuleDict)) for m in path)


def spread_over_attention(candidates: Mapping[int, nn.Module], reasons: dict[int, str]) -> None:
    """nn.MultiheadAttention reads its output projection: both are converted or neither is."""
    for key, module in candidates.items():
        if isinstance(module, nn.MultiheadAttention):
            child = id(module.out_proj)
            unknown = f"its output projection is a {type(module.out_proj).__name__}"
            reasons[key] = reasons[key] or reasons.get(child, unknown)
            if child in candidates:
                reasons[child] = reasons[key]


def spread_over_ties(
    net: nn.Module, names: Mapping[int, str], candidates: Mapping[int, nn.Module], reasons: dict[int, str]
) -> None:
    """A tied weight is converted everywhere it is used or nowhere, so that it stays tied."""
    owners: dict[int, list[tuple[nn.Module, str]]] = defaultdict(list)
    memory: dict[int, set[int]] = defaultdict(set)
    for module in net.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                owners[id(parameter)].append((module, name))
                if parameter.numel():
                    memory[parameter.untyped_storage().data_ptr()].add(id(parameter))
    changed = True
    while changed:
        changed = False
        for places in owners.values():
            weights = [(m, n) for m, n in places if id(m) in candidates and "weight" in n]
            if not weights:
                continue
            parameter = weights[0][0]._parameters[weights[0][1]]
            assert parameter is not None
            reason = ""
            for module, name in places:
                if (module, name) not in weights:
                    reason = f"its weight is tied to '{names[id(module)]}.{name}', which cannot be converted"
                elif len(places) > 1 and reasons[id(module)]:
                    reason = f"its weight is tied to '{names[id(module)]}': {reasons[id(module)]}"
            geometries = {
                (getattr(m, "transposed", False), getattr(m, "groups", 1), parameter.dim()) for m, _ in weights
            }
            if len(geometries) > 1:
                reason = "its weight is tied to a layer that uses it another way"
            if len(memory[parameter.untyped_storage().data_ptr()]) > 1:
                reason = "its weight shares memory with another parameter"
            for module, _ in weights:
                if reason and not reasons[id(module)]:
                    reasons[id(module)] = reason
                    changed = True
        if changed:
            spread_over_attention(candidates, reasons)


def sequence_first(net: nn.Module) -> set[int]:
    """The feed-forward layers of torch transformer blocks with sequence-first inputs `[sequence, batch, features]`."""
    blocks = [
        m
        for m in net.modules()
        if isinstance(m, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)) and not m.self_attn.batch_first
    ]
    return {id(layer) for block in blocks for layer in (block.linear1, block.linear2)}


def report(net: nn.Module, decisions: list[Decision], factors: Mapping[str, int]) -> Report:
    """The report on every module that owns parameters. `factors`: numbers of added parameters by layer name."""
    by_module = {id(d.module): d for d in decisions}
    counted: set[int] = set()
    layers = []
    for name, module in net.named_modules():
        own = [p for p in module._parameters.values() if p is not None]
        if not own:
            continue
        count = sum(p.numel() for p in own if id(p) not in counted)
        counted.update(id(p) for p in own)
        decision = by_module.get(id(module))
        kind = type(module).__name__
        if decision is None:
            reason = (
                "normalisation over all members"
                if isinstance(module, BATCH_NORMALISATION)
                else "normalisation: shared by all members"  # each example is normalised by itself
                if isinstance(module, NORMALISATION)
                else "recurrent"
                if isinstance(module, nn.RNNBase)
                else "embedding"
                if isinstance(module, (nn.Embedding, nn.EmbeddingBag))
                else "parameters of its own"
            )
            layers.append(Layer(name, kind, count, "shared", reason))
        elif decision.reason:
            layers.append(Layer(name, kind, count, "skipped", decision.reason))
        else:
            layers.append(Layer(name, kind, count, "converted", factors=factors.get(name, 0)))
    return Report(tuple(layers))
