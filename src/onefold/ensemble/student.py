"""Students: a network with M members over shared weights, and a plain network as the case M = 1."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from onefold.ensemble import check, fast_path
from onefold.ensemble.copied import copied, shares
from onefold.ensemble.layers import factor_shapes, to_rank_one
from onefold.ensemble.picking import check_index, substituted
from onefold.ensemble.plan import Decision, Report, decide, report
from onefold.ensemble.rank_one import ROWS, R, RankOne, S, named_factors
from onefold.ensemble.twin import at_rest
from onefold.ensemble.usable import check_not_compiled, check_one_input
from onefold.types import logits_in

Init = Literal["ones", "normal"]
AnyStudent = TypeVar("AnyStudent", "Plain", "BatchEnsemble")
NORMAL_DEVIATION = 0.5  # BatchEnsemble draws its factors from N(1, 0.5^2)


class Plain(nn.Module):
    """An ordinary network as a student with one member: maps `[B, ...]` to `[1, B, K]`."""

    members = 1

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        if not isinstance(net, nn.Module):
            raise ValueError(f"net: expected a torch.nn.Module, got {type(net).__name__}")
        check_one_input("net", net)
        self.net = net
        twin_of(self)  # now, because it cannot be built under torch.compile

    @property
    def at_rest(self) -> Plain:
        """This student in evaluation mode, sharing its parameters and buffers; its own mode does not matter."""
        return twin_of(self)

    def forward(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        logits = logits_of(self.net, x).unsqueeze(0)
        if members is None:
            return logits
        check_index(members, 1)
        return logits[members]

    @contextlib.contextmanager
    def picking(self, members: Tensor) -> Iterator[Callable[[Tensor], Tensor]]:
        """Yields a function that runs the picked members."""
        yield lambda x: self(x, members)

    def parameter_groups(self, lr: float, weight_decay: float, *, adaptive: bool = False) -> list[dict[str, Any]]:  # noqa: ARG002
        """One group with all trainable parameters."""
        trained = [p for p in self.parameters() if p.requires_grad]
        return [{"params": trained, "lr": lr, "weight_decay": weight_decay}]


class BatchEnsemble(nn.Module):
    """M networks theta o (r_m s_m^T) that share theta: maps `[B, ...]` to `[M, B, K]`. Made by `batch_ensemble`.

    Every member sees the whole batch: it is repeated M times, and normalisation layers run over all M * B examples.
    """

    def __init__(self, net: nn.Module, members: int, init: Init, report: Report) -> None:
        super().__init__()
        self.net = net  # the converted copy
        self.members = members
        self.init = init
        self.report = report
        self.checked = False
        self.factor_names = frozenset(named_factors(net))
        twin_of(self)  # now, because it cannot be built under torch.compile

    @property
    def at_rest(self) -> BatchEnsemble:
        """This student in evaluation mode, sharing its parameters and buffers; its own mode does not matter."""
        return twin_of(self)

    def forward(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """Logits of all members, or of those an index tensor picks (without a device sync)."""
        refuse_bytes(x)
        if not self.checked and check.possible(x):
            self.check(x)
        if members is None:
            return self.answer(x, self.members)
        check_index(members, self.members)
        # The layers take the number of members from their factors, so picked factors make a smaller ensemble.
        return self.answer(x, members.shape[0], self.picked(members))

    @contextlib.contextmanager
    def picking(self, members: Tensor) -> Iterator[Callable[[Tensor], Tensor]]:
        """Yields a function that runs the picked members; compute gradients with respect to its input inside."""
        check_index(members, self.members)
        picked = self.picked(members)
        count = members.shape[0]
        if torch.compiler.is_compiling():
            yield lambda x: self.answer(x, count, picked)
        else:
            # Only input gradients are wanted here: detached weights spare the layers computing theirs.
            constants = {name: p.detach() for name, p in self.net.named_parameters()}
            with substituted(self.net, constants | {name: f.detach() for name, f in picked.items()}):
                yield lambda x: self.answer(x, count)

    def answer(self, x: Tensor, count: int, factors: dict[str, Tensor] | None = None) -> Tensor:
        """Logits `[count, B, K]`, with `factors` in place of the network's own if given."""
        tiled = x.repeat(count, *(1,) * (x.dim() - 1))
        if torch.compiler.is_compiling():
            logits = logits_of(self.net, tiled, factors)
        else:
            rows = ROWS.set(tiled.shape[0])
            try:
                logits = logits_of(self.net, tiled, factors)
            finally:
                ROWS.reset(rows)
        return torch.unflatten(logits, 0, (count, -1))

    def picked(self, members: Tensor) -> dict[str, Tensor]:
        """The factors of the picked members; all factors are concatenated first, so that one kernel selects."""
        factors = self.factors()
        rows = torch.cat(list(factors.values()), dim=1).index_select(0, members)
        return dict(zip(factors, rows.split([f.shape[1] for f in factors.values()], dim=1), strict=True))

    def factors(self) -> dict[str, nn.Parameter]:
        """Every r - 1 and s - 1 of the network by name; tied ones appear once."""
        return {name: p for name, p in self.net.named_parameters() if name in self.factor_names}

    def parameter_groups(self, lr: float, weight_decay: float, *, adaptive: bool = False) -> list[dict[str, Any]]:
        """Parameter groups with which an ordinary optimizer takes the steps of the paper's algorithm 2.

        theta gets the gradient of the mean loss over the members, and weight decay lambda. r_m and s_m get the full
        gradient of member m's loss, which is M times what the mean gives them, and decay lambda (r_m - 1). M times the
        learning rate, with decay lambda / M on the offsets r_m - 1, is exactly that, for SGD with any momentum. The
        factors of a BE student (`init="normal"`) are not decayed.

        `adaptive=True` is for optimizers that normalise the gradient's scale and decouple weight decay, such as AdamW:
        factors then get the same lr and lambda as everything else. A scheduler must scale each group's own learning
        rate (LambdaLR and the like do; OneCycleLR needs a list of rates).
        """
        factors = list(self.factors().values())
        known = {id(p) for p in factors}
        shared = [p for p in self.parameters() if p.requires_grad and id(p) not in known]
        scale = 1 if adaptive else self.members
        pull = weight_decay / scale if self.init == "ones" else 0.0
        return [
            {"params": shared, "lr": lr, "weight_decay": weight_decay},
            {"params": [p for p in factors if p.requires_grad], "lr": lr * scale, "weight_decay": pull},
        ]

    def check(self, x: Tensor) -> None:
        """Compares the members with their subnetworks on an example, layer by layer, with random factors.

        The first call of the student does this automatically, unless it is being compiled or captured;
        `batch_ensemble(..., example=x)` has already done it. Raises ValueError if a layer mixes up the members, which
        happens when code reorders the batch in an unusual way.
        """
        found = check.first_disagreement(self.net, x)
        if found is not None:
            remedy = (
                f". Convert with batch_ensemble(..., example=x), which leaves such layers shared by itself, "
                f"or with keep=['{found.layer}']"
            )
            raise ValueError(f"layer '{found.layer}': {found.reason}{remedy}" if found.layer else found.reason)
        self.checked = self.at_rest.checked = True


def batch_ensemble(
    net: nn.Module,
    members: int,
    init: Init = "ones",
    *,
    example: Tensor | None = None,
    keep: Collection[str] = (),
    generator: torch.Generator | None = None,
) -> BatchEnsemble:
    """Turns any classifier into a student with M members. The network is copied and never changed.

    Args:
        net: a module that maps `[B, ...]` to logits `[B, K]`. Its weights become theta.
        members: M, one for each teacher.
        init: "ones" for LatentBE; "normal" for BE, whose factors are drawn from N(1, 0.5^2).
        example: a few inputs. If given, the network is run on them to find each layer's batch dimension; layers whose
            members cannot be kept apart are left shared; and the result is verified: with all factors at one, members
            must return what `net` does, and member m must return what `subnetwork(student, m)` does.
        keep: names of layers, or of modules that contain them, to leave shared.
        generator: random generator for the factors of "normal".
    """
    if not isinstance(net, nn.Module):
        raise ValueError(f"net: expected a torch.nn.Module, got {type(net).__name__}")
    if isinstance(net, (BatchEnsemble, Plain)):
        raise ValueError("net: this is a student already; give the ordinary network")
    if isinstance(net, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise ValueError(f"net: expected the network inside, got it wrapped in {type(net).__name__}; give net.module")
    check_not_compiled("net", net)
    check_one_input("net", net)
    if isinstance(members, bool) or not isinstance(members, int) or members < 1:
        raise ValueError(f"members: expected a whole number of at least 1, got {members!r}")
    if init not in ("ones", "normal"):
        raise ValueError(f"init: expected 'ones' or 'normal', got {init!r}")
    if shares(copied(net), net):  # whatever is converted and checked would be parts of the user's network
        raise ValueError(
            f"net: expected a network that can be copied, got a {type(net).__name__} whose copies share weights with "
            "it; leave out a __deepcopy__ that returns the module itself"
        )
    if example is None:
        return convert(net, members, init, decide(net, keep), generator)
    if not isinstance(example, Tensor):
        raise ValueError(f"example: expected a tensor of inputs, got {type(example).__name__}")
    refuse_bytes(example)
    check.independent(net, example)
    found, dims = check.observe(net, example)
    state = None if generator is None else generator.get_state()
    while True:
        if generator is not None and state is not None:
            generator.set_state(state)  # a second attempt draws the same factors
        student = convert(net, members, init, decide(net, keep, found, dims), generator)
        disagreement = check.first_disagreement(student.net, example)
        if disagreement is None:
            break
        if not disagreement.layer or disagreement.layer in found:
            raise ValueError(disagreement.reason)
        found[disagreement.layer] = disagreement.reason
    check.same_as_original(student.net, members, net, example)
    student.checked = student.at_rest.checked = True
    return student


def convert(
    net: nn.Module,
    members: int,
    init: Init,
    decisions: list[Decision],
    generator: torch.Generator | None = None,
) -> BatchEnsemble:
    """Applies the decisions to a copy of the network."""
    converted = [d for d in decisions if not d.reason]
    if not converted:
        reasons = "; ".join(f"'{d.name}': {d.reason}" for d in decisions[:5])
        raise ValueError(
            f"net: {type(net).__name__} has no layer that can carry factors (Linear, convolutions, "
            "MultiheadAttention)" + (f"; left out: {reasons}. An example=x may show that some can" if reasons else "")
        )
    was = {id(m): name for name, m in net.named_modules()}
    net_copy = copied(net)
    tied: dict[tuple[int, str], nn.Parameter] = {}  # one pair of factors per weight, however many layers share it
    added: dict[str, int] = {}
    for decision in converted:
        name = was[id(decision.module)]
        layer = to_rank_one(net_copy.get_submodule(name), name, decision.batch_dim)
        attach_factors(layer, members, init, tied, generator)
        added[name] = sum(factor_count(layer, w, members) for w in layer.weight_names)
    fast_path.turn_off(net_copy)
    return BatchEnsemble(net_copy, members, init, report(net, decisions, added))


def attach_factors(
    layer: RankOne,
    members: int,
    init: Init,
    tied: dict[tuple[int, str], nn.Parameter],
    generator: torch.Generator | None,
) -> None:
    for weight_name in layer.weight_names:
        weight = cast(Tensor, getattr(layer, weight_name))
        for which, length in zip((R, S), factor_shapes(layer, weight_name), strict=True):
            key = (id(weight), which)
            if key not in tied:
                # Drawn on the CPU, so that a seed gives the same factors on every device.
                offset = torch.zeros(members, length)
                if init == "normal":
                    offset.normal_(0, NORMAL_DEVIATION, generator=generator)
                tied[key] = nn.Parameter(offset.to(weight.device, weight.dtype))
            layer.register_parameter(which.format(weight_name), tied[key])


def factor_count(layer: RankOne, weight_name: str, members: int) -> int:
    return members * sum(factor_shapes(layer, weight_name))


def logits_of(net: nn.Module, x: Tensor, substitutes: dict[str, Tensor] | None = None) -> Tensor:
    """Logits `[B, K]` of a network, with some of its parameters replaced if `substitutes` are given."""
    refuse_bytes(x)
    # cuDNN has no backward for recurrent layers in evaluation mode; torch's own implementation does.
    with torch.backends.cudnn.flags(enabled=False) if recurrent(net, x) else contextlib.nullcontext():
        output = net(x) if substitutes is None else torch.func.functional_call(net, substitutes, (x,))
    logits = logits_in(output)
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        shape = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"{type(net).__name__}: expected a network that answers logits [B, K], got {shape}")
    return logits


def recurrent(net: nn.Module, x: Tensor) -> bool:
    """Whether an input gradient is wanted through a recurrent layer, on a GPU, in evaluation mode."""
    if torch.compiler.is_compiling() or not (x.is_cuda and x.requires_grad) or net.training:
        return False
    return any(isinstance(module, nn.RNNBase) for module in net.modules())


def refuse_bytes(x: Tensor) -> None:
    """Refuses uint8 inputs: these are unscaled images, while token indices come in wider integers."""
    if x.dtype == torch.uint8:
        raise ValueError("x: expected floating-point inputs, got uint8; divide images by 255")


def twin_of(student: AnyStudent) -> AnyStudent:
    """The student's evaluation-mode twin, not registered as a submodule. Cached; rebuilt if modules were replaced."""
    twin = student.__dict__.get("_twin")
    if twin is student or (torch.compiler.is_compiling() and twin is not None):
        return cast(AnyStudent, twin)
    built_from = tuple((id(m), id(m._parameters), id(m._buffers)) for m in student.net.modules())
    if student.__dict__.get("_twin_of") != built_from:
        student.__dict__.pop("_twin", None)
        twin = at_rest(student)
        twin.__dict__["_twin"] = student.__dict__["_twin"] = twin
        student.__dict__["_twin_of"] = built_from
    return cast(AnyStudent, twin)
