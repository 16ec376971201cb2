"""Teachers: M trained networks, used for inference only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from onefold.ensemble.copied import copied
from onefold.ensemble.picking import check_index, substituted
from onefold.ensemble.student import logits_of
from onefold.ensemble.usable import check_not_compiled, check_one_input
from onefold.fast.streams import together

ALIGNED = 64  # elements: the alignment of every weight, which the fastest kernels require


class Place(NamedTuple):
    """Where a weight is stored: its row, and its offset, shape and stride there."""

    row: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @staticmethod
    def of(weight: Tensor, row: int, offset: int) -> Place:
        dense = torch.empty_like(weight, device="meta")  # keeps a dense layout such as channels_last
        return Place(row, offset, tuple(weight.shape), tuple(dense.stride()))


class Teachers(nn.Module):
    """Frozen networks in evaluation mode: maps `[B, ...]` to `[M, B, K]`.

    The networks may have different architectures. If all are the same, an index tensor on any device picks members
    without a device sync: the picked weights are gathered from a stack of all members' weights, and only those
    networks run. If they differ, an index on the CPU picks the networks to run, and an index on another device runs
    all of them and selects among their outputs.

    Args:
        networks: a list of trained networks, each of which maps `[B, ...]` to logits `[B, K]`; they are copied.
        example: a few inputs to run every network on once, so that teachers with different numbers of classes fail now.
    """

    def __init__(self, networks: Iterable[nn.Module] | nn.Module, *, example: Tensor | None = None) -> None:
        super().__init__()
        if isinstance(networks, nn.Sequential) or not isinstance(networks, Iterable):
            raise ValueError(
                f"networks: expected a list of networks, got one {type(networks).__name__}; give [network]"
            )
        networks = list(networks)
        if not networks:
            raise ValueError("networks: expected at least one teacher, got none")
        for m, network in enumerate(networks):
            if not isinstance(network, nn.Module):
                raise ValueError(f"networks: expected torch.nn.Module, got {type(network).__name__} for teacher {m}")
            if any(isinstance(module, torch.jit.ScriptModule) for module in network.modules()):
                raise ValueError(
                    f"networks: expected torch.nn.Module, got TorchScript for teacher {m}, whose weights are not "
                    "PyTorch's; give the module that it was traced or scripted from, or what torch.export makes of it, "
                    "torch.export.load(FILE).module()"
                )
            check_not_compiled(f"networks: teacher {m}", network)
            check_one_input(f"networks: teacher {m}", network)
        self.networks = nn.ModuleList(copied(network) for network in networks)
        self.alike = len(networks) > 1 and all(same_architecture(networks[0], n) for n in networks[1:])
        self.requires_grad_(False).eval()
        self.restack()
        self.register_load_state_dict_post_hook(after_loading)  # type: ignore[no-untyped-call]
        if example is not None:
            self.check(example)

    @property
    def members(self) -> int:
        return len(self.networks)

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002
        """Teachers stay in evaluation mode, even when a module that contains them is set to train."""
        return super().train(False)

    def forward(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """Logits of all teachers, or of those an index tensor picks; differentiable with respect to x."""
        if members is None:
            # As concurrent parts: one small network alone does not fill a GPU.
            parts = [partial(logits_of, network, x) for network in self.networks]
            return self.stacked(together(parts), range(self.members))
        check_index(members, self.members)
        if on_the_host(members):
            picked = members.tolist()
            return self.stacked([logits_of(self.networks[m], x) for m in picked], picked)
        if not self.alike:
            return self.forward(x)[members]
        answers = [logits_of(self.networks[0], x, self.weights(members[k : k + 1])) for k in range(members.shape[0])]
        return torch.stack(answers)

    @contextlib.contextmanager
    def picking(self, members: Tensor) -> Iterator[Callable[[Tensor], Tensor]]:
        """Yields a function that runs the picked members; compute gradients with respect to its input inside."""
        if torch.compiler.is_compiling() or on_the_host(members) or not self.alike or members.shape[0] != 1:
            yield lambda x: self(x, members)
        else:
            check_index(members, self.members)
            with substituted(self.networks[0], self.weights(members)):
                yield lambda x: logits_of(self.networks[0], x).unsqueeze(0)

    def weights(self, member: Tensor) -> dict[str, Tensor]:
        """One member's weights, picked by an index `[1]` that stays on the device."""
        if not torch.compiler.is_compiling() and not self.fresh():
            self.restack()
        places: dict[str, Place] = self.__dict__["places"]
        rows = [row.index_select(0, member) for row in self.__dict__["rows"]]
        return {name: rows[p.row].as_strided(p.shape, p.stride, p.offset) for name, p in places.items()}

    def check(self, x: Tensor) -> None:
        """Runs every teacher once: all must have the same classes. Networks whose output changes when their weights are
        picked by index are no longer treated as alike."""
        with torch.no_grad():
            answers = self(x)
            if self.alike:
                each = [self.weights(torch.tensor([m], device=x.device)) for m in range(self.members)]
                by_weights = torch.stack([logits_of(self.networks[0], x, weights) for weights in each])
                self.alike = torch.allclose(answers, by_weights, rtol=1e-3, atol=1e-3 * float(answers.abs().max()))
                self.restack()

    def stacked(self, answers: list[Tensor], members: Sequence[int]) -> Tensor:
        classes = [answer.shape[-1] for answer in answers]
        for m, count in zip(members, classes, strict=True):
            if count != classes[0]:
                first = type(self.networks[members[0]]).__name__
                raise ValueError(
                    f"teacher {m} ({type(self.networks[m]).__name__}) answers {count} classes and teacher "
                    f"{members[0]} ({first}) {classes[0]}; all teachers have to answer the same classes"
                )
        return torch.stack(answers)

    def restack(self) -> None:
        """Packs each member's weights into a row, and makes the networks' tensors views of it: there is no second copy,
        and picking a member takes one kernel for each dtype."""
        rows: list[Tensor] = []  # [M, P] for each dtype and device
        places: dict[str, Place] = {}
        if self.alike:
            owners = [dict([*n.named_parameters(), *n.named_buffers()]) for n in self.networks]
            kinds: dict[tuple[torch.dtype, torch.device], list[str]] = {}
            for name, own in owners[0].items():
                kinds.setdefault((own.dtype, own.device), []).append(name)
            for (dtype, device), names in kinds.items():
                length = 0
                for name in names:
                    places[name] = Place.of(owners[0][name], len(rows), length)
                    length += -(-owners[0][name].numel() // ALIGNED) * ALIGNED
                rows.append(torch.zeros(self.members, length, dtype=dtype, device=device))
                for m, held in enumerate(owners):
                    for name in names:
                        p = places[name]
                        values = rows[-1][m].as_strided(p.shape, p.stride, m * length + p.offset)
                        held[name].data = values.copy_(held[name].data)
        # Kept out of the state_dict: the networks already hold these values under their own names.
        self.__dict__["rows"], self.__dict__["places"] = rows, places

    def fresh(self) -> bool:
        """Whether the networks still hold views of the rows."""
        rows: list[Tensor] = self.__dict__["rows"]
        places: dict[str, Place] = self.__dict__["places"]
        for m, network in enumerate(self.networks):
            for name, own in (*network.named_parameters(), *network.named_buffers()):
                p = places.get(name)
                if p is None or own.dtype != rows[p.row].dtype or own.stride() != p.stride:
                    return False
                if own.data_ptr() != rows[p.row][m].data_ptr() + p.offset * own.element_size():
                    return False
        return True

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.restack()  # after a copy or unpickling, the networks hold separate tensors

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.restack()
        return self


def after_loading(teachers: Teachers, _: object) -> None:
    teachers.restack()


def same_architecture(a: nn.Module, b: nn.Module) -> bool:
    """Whether a and b differ in nothing but the values of parameters and buffers. If in doubt, False."""
    if [n for n, _ in a.named_modules()] != [n for n, _ in b.named_modules()]:
        return False
    for one, other in zip(a.modules(), b.modules(), strict=True):
        if type(one) is not type(other) or settings(one).keys() != settings(other).keys():
            return False
        if not all(equal(value, settings(other)[name]) for name, value in settings(one).items()):
            return False
        for tensors, others in ((one._parameters, other._parameters), (one._buffers, other._buffers)):
            if describe(tensors) != describe(others):
                return False
    return ties(a) == ties(b)


def ties(net: nn.Module) -> list[list[str]]:
    """Groups the names that refer to the same tensor."""
    groups: dict[int, list[str]] = {}
    for named in (net.named_parameters(remove_duplicate=False), net.named_buffers(remove_duplicate=False)):
        for name, tensor in named:
            groups.setdefault(id(tensor), []).append(name)
    return list(groups.values())


def on_the_host(index: Tensor) -> bool:
    """Whether the index can be read without a device sync."""
    return index.device.type == "cpu" and not torch.compiler.is_compiling()


def settings(module: nn.Module) -> dict[str, Any]:
    """Attributes, besides tensors and children, that determine what a module computes."""
    return {
        name: value
        for name, value in module.__dict__.items()
        if name not in ("_parameters", "_buffers", "_modules", "training", "_is_full_backward_hook")
    }


def equal(a: object, b: object) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(cast(Any, b)) and all(map(equal, a, cast(Any, b)))
    if isinstance(a, dict):
        return a.keys() == cast(Any, b).keys() and all(equal(a[k], cast(Any, b)[k]) for k in a)
    if isinstance(a, Tensor):
        return torch.equal(a, cast(Tensor, b))
    try:
        return a is b or bool(a == b)
    except Exception:  # an attribute that cannot be compared
        return False


def describe(tensors: Any) -> list[Any]:
    return [(name, None if t is None else (t.shape, t.dtype, t.device)) for name, t in tensors.items()]
