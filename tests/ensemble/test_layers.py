"""Every convertible layer: members equal their subnetworks, and the collapse is the mean of the members."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from onefold import batch_ensemble, collapse, subnetwork
from onefold.ensemble import BatchEnsemble, interpolate


class Head(nn.Module):
    """One layer under test between an input and logits [B, K]."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return (
            torch.as_tensor(self.layer(x)).tanh().flatten(2).mean(-1) if x.dim() > 2 else torch.as_tensor(self.layer(x))
        )


class Attention(nn.Module):
    def __init__(self, masks: bool = False, cross: bool = False, **kwargs: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **kwargs)
        self.masks, self.cross = masks, cross

    def forward(self, x: Tensor) -> Tensor:
        attention = self.attention
        keys = attention.kdim
        other = x[..., :keys] if keys <= 8 else torch.cat([x, x[..., : keys - 8]], -1)
        values = x[..., : attention.vdim]
        if not attention.batch_first:
            x, other, values = x.transpose(0, 1), other.transpose(0, 1), values.transpose(0, 1)
        same = not self.cross and keys == 8 and attention.vdim == 8
        batch, length = (x.shape[0], x.shape[1]) if attention.batch_first else (x.shape[1], x.shape[0])
        masks: dict[str, Tensor] = {}
        if self.masks:
            # A mask that differs from example to example, so that a wrong split of it would show.
            late = torch.arange(length) > 2
            masks["key_padding_mask"] = late & (x.mean((1, 2) if attention.batch_first else (0, 2)) > 0)[:, None]
            masks["attn_mask"] = torch.zeros(batch * 2, length, length, dtype=torch.bool)
            masks["attn_mask"][:, 0, 1] = True
        y, weights = attention(x, x if same else other, x if same else values, need_weights=True, **masks)
        y = y if attention.batch_first else y.transpose(0, 1)
        return torch.as_tensor(y.mean(1) + weights.mean((1, 2))[:, None])


def conv(kind: type[nn.Module], **kwargs: Any) -> nn.Module:
    return Head(kind(4, 6, 3, **kwargs))


NETWORKS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (Head(nn.Linear(5, 4)), (5,)),
    "linear without bias": (Head(nn.Linear(5, 4, bias=False)), (5,)),
    "linear on rank 3": (Head(nn.Linear(5, 4)), (6, 5)),
    "linear on rank 5": (Head(nn.Linear(5, 4)), (2, 3, 2, 5)),
    "conv1d": (conv(nn.Conv1d, dilation=2), (4, 9)),
    "conv2d": (conv(nn.Conv2d, stride=2, padding=1), (4, 8, 8)),
    "conv2d reflect": (conv(nn.Conv2d, padding=1, padding_mode="reflect"), (4, 6, 6)),
    "conv2d same": (conv(nn.Conv2d, padding="same", bias=False), (4, 6, 6)),
    "conv2d grouped": (conv(nn.Conv2d, groups=2), (4, 6, 6)),
    "conv2d depthwise": (Head(nn.Conv2d(4, 4, 3, groups=4)), (4, 6, 6)),
    "conv2d depthwise, two filters": (Head(nn.Conv2d(4, 8, 3, groups=4)), (4, 6, 6)),
    "conv3d": (conv(nn.Conv3d, padding=1), (4, 3, 4, 3)),
    "conv transpose 1d": (conv(nn.ConvTranspose1d, stride=2, output_padding=1), (4, 5)),
    "conv transpose 2d": (conv(nn.ConvTranspose2d, stride=2, padding=1), (4, 5, 5)),
    "conv transpose 2d grouped": (conv(nn.ConvTranspose2d, groups=2), (4, 4, 4)),
    "conv transpose 3d": (conv(nn.ConvTranspose3d, dilation=2), (4, 2, 3, 2)),
    "attention": (Attention(batch_first=True), (5, 8)),
    "attention, sequence first": (Attention(), (5, 8)),
    "attention, masks": (Attention(masks=True, batch_first=True), (5, 8)),
    "attention, sequence first, masks": (Attention(masks=True), (5, 8)),
    "attention, other keys and values": (Attention(batch_first=True, kdim=3, vdim=5), (5, 8)),
    "attention, extras": (Attention(batch_first=True, add_bias_kv=True, add_zero_attn=True, bias=False), (5, 8)),
    "attention, cross": (Attention(batch_first=True, cross=True), (5, 8)),
}


@pytest.fixture(params=NETWORKS, ids=str)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, Tensor]:
    net, shape = NETWORKS[request.param]
    torch.manual_seed(0)
    return copy.deepcopy(net).double(), torch.randn(3, *shape, dtype=torch.float64)


def with_factors(student: BatchEnsemble, spread: float = 0.5) -> BatchEnsemble:
    for factor in student.factors().values():
        nn.init.normal_(factor, 0, spread)
    return student


@pytest.mark.parametrize("example", [False, True], ids=["without example", "with example"])
def test_members_are_their_subnetworks(case: tuple[nn.Module, Tensor], example: bool) -> None:
    net, x = case
    student = with_factors(batch_ensemble(net, 3, example=x if example else None))
    assert len(student.report.converted) >= 1
    assert not student.report.skipped
    logits = student(x)
    assert logits.shape[:2] == (3, 3)
    for m in range(3):
        torch.testing.assert_close(logits[m], subnetwork(student, m)(x), rtol=1e-10, atol=1e-10)
    assert not torch.allclose(logits[0], logits[1])


def test_picked_members(case: tuple[nn.Module, Tensor]) -> None:
    net, x = case
    student = with_factors(batch_ensemble(net, 4))
    torch.testing.assert_close(student(x, torch.tensor([2, 0])), student(x)[[2, 0]], rtol=1e-10, atol=1e-10)


def test_factors_at_one_answer_as_the_original(case: tuple[nn.Module, Tensor]) -> None:
    net, x = case
    for member in batch_ensemble(net, 3)(x):
        torch.testing.assert_close(member, net(x), rtol=1e-10, atol=1e-12)
    single = batch_ensemble(copy.deepcopy(net).float(), 3)(x.float())
    torch.testing.assert_close(single[0], copy.deepcopy(net).float()(x.float()), rtol=1e-5, atol=1e-6)


def test_collapse_is_the_mean_of_the_members(case: tuple[nn.Module, Tensor]) -> None:
    net, _ = case
    student = with_factors(batch_ensemble(net, 3))
    averaged = collapse(student).state_dict()
    members = [subnetwork(student, m).state_dict() for m in range(3)]
    assert averaged.keys() == net.state_dict().keys()
    for key, value in averaged.items():
        torch.testing.assert_close(value, torch.stack([s[key] for s in members]).mean(0), rtol=1e-12, atol=1e-14)


def test_equal_members_collapse_to_each(case: tuple[nn.Module, Tensor]) -> None:
    net, x = case
    student = with_factors(batch_ensemble(net, 3))
    for factor in student.factors().values():
        factor.data.copy_(factor.data[:1].expand_as(factor))
    torch.testing.assert_close(collapse(student)(x), student(x)[1], rtol=1e-10, atol=1e-10)


def test_the_original_is_untouched_and_the_class_comes_back(case: tuple[nn.Module, Tensor]) -> None:
    net, x = case
    before = copy.deepcopy(net.state_dict())
    kinds = [type(m) for m in net.modules()]
    student = with_factors(batch_ensemble(net, 2))
    weights = copy.deepcopy(student.state_dict())
    student(x).sum().backward()
    averaged = collapse(student)
    averaged(x).sum().backward()
    assert [type(m) for m in net.modules()] == kinds == [type(m) for m in averaged.modules()]
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert all(torch.equal(value, weights[key]) for key, value in student.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert averaged.__dict__.keys() == net.__dict__.keys()
    copy.deepcopy(net).load_state_dict(averaged.state_dict(), strict=True)


def test_pickle_and_deepcopy(case: tuple[nn.Module, Tensor]) -> None:
    net, x = case
    student = with_factors(batch_ensemble(net, 2))
    again = pickle.loads(pickle.dumps(student))
    assert torch.equal(again(x), student(x))
    assert torch.equal(again.at_rest(x), student.at_rest(x))
    other = copy.deepcopy(student)
    with_factors(other)
    assert not torch.equal(other(x), student(x))
    assert torch.equal(other.at_rest(x), other(x))


def test_interpolate_is_a_line_in_weight_space() -> None:
    student = with_factors(batch_ensemble(nn.Sequential(nn.Linear(3, 2)).double(), 2))
    a, b = (subnetwork(student, m).state_dict() for m in (0, 1))
    for key, value in interpolate(student, [1.5, -0.5]).state_dict().items():
        torch.testing.assert_close(value, 1.5 * a[key] - 0.5 * b[key])
    with pytest.raises(ValueError, match="coefficients: expected 2"):
        interpolate(student, [1.0])


@settings(deadline=None, max_examples=25)
@given(
    members=st.integers(1, 5),
    batch=st.integers(1, 4),
    classes=st.sampled_from([2, 3, 1000]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    init=st.sampled_from(["ones", "normal"]),
)
def test_shapes(members: int, batch: int, classes: int, dtype: torch.dtype, init: Any) -> None:
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, classes)).to(dtype)
    student = batch_ensemble(net, members, init)
    logits = student(torch.randn(batch, 2, 4, 4, dtype=dtype))
    assert logits.shape == (members, batch, classes)
    assert logits.dtype == dtype
    assert collapse(student)(torch.randn(batch, 2, 4, 4, dtype=dtype)).shape == (batch, classes)
