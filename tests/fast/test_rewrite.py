"""Rewritten networks compute what the networks compute: values, every gradient, every statistic."""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import onefold
from onefold.engine import accelerate
from onefold.engine.accelerate import fast_student, fast_teachers
from onefold.engine.alike import close, gradient
from onefold.engine.distributed.batch_norm import share_statistics
from onefold.engine.distributed.world import ALONE
from onefold.ensemble import BatchEnsemble, Plain
from onefold.ensemble.layers import RankOneConv, RankOneLinear
from onefold.fast import network, passes
from onefold.fast.across import World
from onefold.fast.fold_norms import fold_pairs, foldable
from onefold.fast.network import make_fast, make_plain
from onefold.fast.normalize import normalize
from onefold.fast.rewrite import rewrite
from onefold.models import WideResNet
from onefold.models.standardize import CIFAR10

SIZE = 12


class PostActivation(nn.Module):
    """As in torchvision's residual networks: in-place activations, a bias, a projection, no activation at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.norm0 = nn.BatchNorm2d(6)
        self.relu = nn.ReLU(inplace=True)
        self.conv1, self.norm1 = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.norm2 = nn.Conv2d(6, 8, 3, stride=2, padding=1, groups=2), nn.BatchNorm2d(8, momentum=0.3)
        self.project, self.norm3 = nn.Conv2d(6, 8, 1, stride=2), nn.BatchNorm2d(8, affine=False)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm0(self.stem(x)))
        h = self.relu(self.norm1(self.conv1(x)))
        h = self.norm2(self.conv2(h))
        h += self.norm3(self.project(x))
        return torch.as_tensor(self.head(self.relu(h).mean((2, 3))))


class Odd(nn.Module):
    """Norms that cannot be put together with anything, one of them called with its arguments' names."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.Linear(3 * SIZE * SIZE, 7)
        self.norm = nn.BatchNorm1d(7)
        self.other = nn.BatchNorm1d(7)
        self.head = nn.Linear(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.flat(x.flatten(1)))
        h = F.gelu(h) + h
        mean, var = self.other.running_mean, self.other.running_var
        other = F.batch_norm(input=h, running_mean=mean, running_var=var, training=self.training, eps=0.1)
        return torch.as_tensor(self.head(F.relu(other) + torch.relu(h)))


class InPlace(nn.Module):
    """Sums that happen in place, and are seen again under their first name."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 1)
        self.third, self.norm = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        before = self.one(x)
        h = before
        h += self.other(x)
        h = F.relu(self.norm(h)) + before
        again = h
        h += self.third(self.other(x))
        return torch.as_tensor(self.head((h + again).mean((2, 3))))


def wide() -> nn.Module:
    return WideResNet(1, 1, 4, CIFAR10)


class Transformer(nn.Module):
    """Patches, attention and a head: linear layers on sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.norm, self.q, self.kv, self.out = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(8, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patches(x).flatten(2).transpose(1, 2)  # [B, T, 8]
        k, v = self.kv(self.norm(h)).chunk(2, -1)
        h = h + self.out(F.scaled_dot_product_attention(self.q(self.norm(h)), k, v))
        return torch.as_tensor(self.head(F.gelu(h).mean(1)))


class Views(nn.Module):
    """Asks for channels outermost in memory: where they are innermost, `view` cannot make one of them and pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.other = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Conv2d(6, 5, 3, stride=2)
        self.head = nn.Linear(5 * 16, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.other(F.relu(self.norm(self.one(x)))))
        return torch.as_tensor(self.head(h.view(x.size(0), -1)))


NETWORKS: list[Callable[[], nn.Module]] = [wide, PostActivation, InPlace, Odd, Transformer, Views]


@pytest.fixture(autouse=True)
def on_activations(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a GPU."""
    monkeypatch.setattr(RankOneConv, "on_activations", True)
    monkeypatch.setattr(RankOneLinear, "on_activations", True)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def randomised(net: nn.Module) -> nn.Module:
    """In float64, with other statistics and weights than a new network has."""
    net = net.double()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn_like(p) / 20)
        net.train()(torch.rand(8, 3, SIZE, SIZE, dtype=torch.float64))
    return net


def pair(make: Callable[[], nn.Module], members: int) -> tuple[BatchEnsemble | Plain, BatchEnsemble | Plain]:
    """A student, and the same one made fast."""
    torch.manual_seed(0)
    net = randomised(make())
    example = torch.rand(4, 3, SIZE, SIZE, dtype=torch.float64)
    plain: BatchEnsemble | Plain = (
        Plain(net) if members == 1 else onefold.batch_ensemble(net, members, init="normal", example=example)
    )
    fast = copy.deepcopy(plain)
    for one in (fast.net, fast.at_rest.net):
        make_fast(one)
    return plain, fast


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
def test_training_is_the_same(make: Callable[[], nn.Module], members: int) -> None:
    plain, fast = pair(make, members)
    plain.train()
    fast.train()
    for size in (6, 6, 4):  # the last batch of an epoch is smaller
        x = torch.rand(size, 3, SIZE, SIZE, dtype=torch.float64)
        expected, found = plain(x), fast(x)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        g = torch.randn_like(expected)
        expected.backward(g)
        found.backward(g)
        for (name, p), (_, q) in zip(plain.named_parameters(), fast.named_parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-8, atol=1e-9, msg=partial("{}: {}".format, name))
            p.grad = q.grad = None
        for (name, held), (_, mine) in zip(plain.named_buffers(), fast.named_buffers(), strict=True):
            torch.testing.assert_close(mine, held, msg=partial("{}: {}".format, name))


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
def test_at_rest_values_and_gradients_are_the_same(make: Callable[[], nn.Module], members: int) -> None:
    plain, fast = pair(make, members)
    x = torch.rand(5, 3, SIZE, SIZE, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(fast.at_rest(x), plain.at_rest(x), rtol=1e-10, atol=1e-10)
    index = torch.tensor([members - 1])
    results = []
    for student in (plain, fast):
        with student.at_rest.picking(index) as member:
            z = x.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(member(z).square().sum(), z)
        results.append(gradient)
    torch.testing.assert_close(results[1], results[0], rtol=1e-8, atol=1e-10)
    assert all(p.grad is None for p in fast.parameters())


def test_training_with_the_statistics_held_learns_everything_else() -> None:
    plain, fast = pair(wide, 2)
    x = torch.rand(5, 3, SIZE, SIZE, dtype=torch.float64)
    plain.at_rest(x).square().sum().backward()
    fast.at_rest(x).square().sum().backward()
    for p, q in zip(plain.parameters(), fast.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-8, atol=1e-9)


def test_what_surrounds_a_normalisation_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[dict[str, int]] = []

    def noting(graph: fx.Graph, *world: World | None) -> dict[str, int]:
        found.append(rewrite(graph, *world))
        return found[-1]

    monkeypatch.setattr(network, "rewrite", noting)
    _, fast = pair(wide, 2)
    fast.train()(torch.rand(4, 3, SIZE, SIZE, dtype=torch.float64))
    assert found[-1]["norms"] == 7
    assert found[-1]["convolutions"] == 9  # the first, two in each of three blocks, two projections


@pytest.mark.parametrize("members", [1, 2])
def test_a_residual_sum_behind_a_norm_goes_with_it(members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[fx.Graph] = []

    def noting(graph: fx.Graph, *world: World | None) -> dict[str, int]:
        graphs.append(graph)
        return rewrite(graph, *world)

    monkeypatch.setattr(network, "rewrite", noting)
    _, fast = pair(PostActivation, members)
    fast.train()(torch.rand(4, 3, SIZE, SIZE, dtype=torch.float64))
    norms = [node for node in graphs[-1].nodes if node.target is normalize]
    assert [node.args[7] is not None for node in norms] == [False, False, False, True]  # the last, once both are there
    assert not any(node.target in (operator.iadd, F.relu) for node in graphs[-1].nodes)


def test_a_sum_in_a_higher_precision_stays_one() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.norm(x) + x.double())

    torch.manual_seed(0)
    net, x = Mixed(), torch.randn(4, 3, 5, 5)
    quick = copy.deepcopy(net)
    make_fast(quick)
    expected, found = net(x), quick(x)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_rewriting_is_taken_back_and_copies_are_plain() -> None:
    net = randomised(wide()).eval()
    x = torch.rand(2, 3, SIZE, SIZE, dtype=torch.float64)
    keys = list(net.state_dict())
    make_fast(net)
    assert list(net.state_dict()) == keys
    copied = copy.deepcopy(net)
    assert copied._compiled_call_impl is None
    torch.testing.assert_close(net(x), copied(x))
    make_plain(net)
    assert torch.equal(net(x), copied(x))


def unbiased() -> nn.Module:
    norm = nn.BatchNorm2d(4)
    norm.register_parameter("bias", None)
    nn.init.uniform_(norm.weight)
    return norm


@pytest.mark.parametrize(
    ("norm", "across", "refused"),
    [
        (partial(nn.BatchNorm2d, 4, momentum=None), False, None),  # torch 2.11 reads it, later ones do not
        (partial(nn.BatchNorm2d, 4, momentum=None), True, True),
        (partial(nn.BatchNorm2d, 4, track_running_stats=False), False, False),
        (partial(nn.BatchNorm2d, 4, track_running_stats=False), True, False),
        (unbiased, False, False),
        (unbiased, True, True),
    ],
)
def test_a_network_that_cannot_be_read_stays_as_it_is_and_says_so(
    norm: Callable[[], nn.Module], across: bool, refused: bool | None
) -> None:
    """A cumulative average depends on a counter's value; without running statistics there is nothing special.

    A layer that asks other processes for its statistics (`across`) has to be put together with what surrounds it.
    """
    rest = nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    student, x = Plain(nn.Sequential(nn.Conv2d(3, 4, 3), norm(), *rest)), torch.rand(8, 3, SIZE, SIZE)
    said: list[str] = []
    before = copy.deepcopy(student)
    if across:
        assert not share_statistics(student.net, ALONE)
    fast_student(student, x, "float32", said.append)
    assert refused is None or len(said) == refused
    assert not (across and refused) or "over several processes" in said[0]
    assert (student.net._compiled_call_impl is None) == bool(said)
    for sentence in said:
        assert "runs layer by layer" in sentence
    for _ in range(3):
        torch.testing.assert_close(student.train()(x), before.train()(x))
    for (name, held), (_, mine) in zip(before.named_buffers(), student.named_buffers(), strict=True):
        torch.testing.assert_close(mine, held, msg=partial("{}: {}".format, name))


def test_a_rewriting_that_goes_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(passes, "gradient", lambda dz, *_: dz)
    fast_student(Plain(wide()), torch.rand(8, 3, SIZE, SIZE), "float32", said.append)
    assert "gradients" in said[0]


@pytest.mark.parametrize("factor", [0.0, 3.0, -1.0])
def test_one_parameter_s_gradient_that_goes_wrong_is_noticed(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it a small part of all, their direction would say nothing."""
    monkeypatch.setattr(accelerate, "EQUAL", -1.0)
    said: list[str] = []
    table = passes.gradient_table

    def wrong(dz: Tensor, y: Tensor, *rest: Any) -> Any:
        coefficients, learned, passed = table(dz, y, *rest)
        assert learned.bias is not None
        return coefficients, learned._replace(bias=factor * learned.bias), passed

    student, x = Plain(wide()), torch.rand(8, 3, SIZE, SIZE)
    before = gradient(copy.deepcopy(student), x, "float32")
    monkeypatch.setattr(passes, "gradient_table", wrong)
    fast_student(student, x, "float32", said.append)
    (sentence,) = said
    named = re.search(r"the gradient of (\S+) differs", sentence)
    assert named is not None
    assert named[1].endswith("bias")
    assert named[1] in before


def test_a_gradient_that_is_rounding_alone_is_no_reason() -> None:
    """A bias before a BatchNorm has none, however its norm is computed."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 100, 4))
    said: list[str] = []
    fast_student(Plain(net), torch.rand(8, 3, SIZE, SIZE), "float32", said.append)
    assert not said


class ZeroHead(Views):
    """As torchvision's transformers begin: all gradients of a new network's mean square are zero."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)


@pytest.mark.parametrize("wrong", [False, True])
def test_zeros_hide_nothing(wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    if wrong:
        monkeypatch.setattr(passes, "gradient", lambda dz, *_: dz)
    student = Plain(ZeroHead())
    fast_student(student, torch.rand(8, 3, SIZE, SIZE), "float32", said.append)
    assert bool(said) is wrong
    assert not student.net.get_parameter("head.weight").any()


def test_a_network_is_read_once_for_all_batch_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Net(PostActivation):  # of this test alone: the compiler remembers what it has read by the code
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    read: list[int] = []
    monkeypatch.setattr(network, "rewrite", lambda graph, world: read.append(len(rewrite(graph, world))))
    plain = Net()
    net = copy.deepcopy(plain)
    make_fast(net)
    for rows in (8, 5, 13):  # from 16 on a CPU has another convolution
        x = torch.rand(rows, 3, SIZE, SIZE)
        torch.testing.assert_close(net(x), plain(x), rtol=1e-4, atol=1e-5)
    assert len(read) == 1


def test_teachers_are_made_fast_in_a_copy() -> None:
    teachers = onefold.Teachers([wide().eval() for _ in range(3)])
    x = torch.rand(4, 3, SIZE, SIZE)
    said: list[str] = []
    fast = fast_teachers(teachers, x, "float32", said.append)
    assert not said
    torch.testing.assert_close(fast(x), teachers(x))
    torch.testing.assert_close(fast(x, torch.tensor([2])), teachers(x, torch.tensor([2])))
    assert all(net._compiled_call_impl is None for net in teachers.networks)
    assert all(net._compiled_call_impl is not None for net in fast.networks)


@pytest.mark.parametrize("odd", [None, 1])
def test_norms_are_folded_in_all_alike_teachers_or_in_none(odd: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is alike answers from one set of weights: a teacher whose folding rounds too much keeps the others' too."""
    teachers = onefold.Teachers([randomised(wide()).float().eval() for _ in range(3)])
    x = torch.rand(4, 3, SIZE, SIZE)
    checked = iter(range(3))
    monkeypatch.setattr(accelerate, "close", lambda *given: next(checked) != odd and close(*given))
    fast = fast_teachers(teachers, x, "float32", print)
    folded = ["stage1.0.norm2.weight" not in net.state_dict() for net in fast.networks]
    assert folded == [odd is None] * 3
    torch.testing.assert_close(fast(x), teachers(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(fast(x, torch.tensor([2])), teachers(x, torch.tensor([2])), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_are_folded_in_the_teachers_precision(dtype: torch.dtype) -> None:
    teachers = onefold.Teachers([randomised(wide()).to(dtype).eval() for _ in range(2)])
    x = torch.rand(4, 3, SIZE, SIZE, dtype=dtype)
    said: list[str] = []
    folded = copy.deepcopy(teachers)
    accelerate.fold_all(folded, teachers, x, said.append)
    assert not said
    assert all("stage1.0.norm2.weight" not in net.state_dict() for net in folded.networks)


def test_a_norm_that_cannot_be_folded_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    teachers = onefold.Teachers([randomised(wide()).float().eval() for _ in range(2)])
    x, said = torch.rand(4, 3, SIZE, SIZE), list[str]()
    monkeypatch.setattr(accelerate, "close", lambda *_: False)
    fast = fast_teachers(teachers, x, "float32", said.append)
    assert said == [
        "the teachers' BatchNorm cannot be folded into their convolutions and is kept: their outputs differ"
    ]
    torch.testing.assert_close(fast(x), teachers(x), rtol=1e-4, atol=1e-4)


def test_norms_of_teachers_are_folded_into_their_convolutions() -> None:
    net = randomised(PostActivation()).eval()
    x = torch.rand(3, 3, SIZE, SIZE, dtype=torch.float64)
    expected, keys = net(x), set(net.state_dict())
    pairs = foldable(net, x)
    assert len(pairs) == 4
    fold_pairs(net, pairs)
    torch.testing.assert_close(net(x), expected, rtol=1e-10, atol=1e-10)
    assert not any("norm" in key for key in net.state_dict())
    assert set(net.state_dict()) <= keys | {"conv1.bias"}
    wide_net = randomised(wide()).eval()
    expected = wide_net(x)
    pairs = foldable(wide_net, x)
    assert len(pairs) == 3  # the others see a sum
    fold_pairs(wide_net, pairs)
    torch.testing.assert_close(wide_net(x), expected, rtol=1e-10, atol=1e-10)
    z = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(wide_net(z).square().sum(), z)
    make_fast(wide_net)
    (found,) = torch.autograd.grad(wide_net(z).square().sum(), z)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)


def test_a_layer_that_is_used_twice_is_not_folded() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.norm(self.conv(self.norm(self.conv(x)))).mean((2, 3)))

    assert not foldable(Twice().eval(), torch.rand(2, 3, SIZE, SIZE))
