"""The weights of AE-KD against exact and independent solutions, and a certificate that needs no solver at all."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onefold.objectives import aekd, capped_simplex, capped_simplex_weights, kd
from onefold.objectives.aekd import teacher_weights

KINDS = ["plain", "duplicates", "mixture", "a teacher", "one-hot", "nearly agreeing"]


def probabilities(kind: str, members: int, classes: int, sharpness: float, batch: int) -> tuple[Tensor, Tensor]:
    """Teachers `[B, M, K]` and a student `[B, K]`, in float64, from the global generator."""
    noise = sharpness * torch.randn(batch, members, classes, dtype=torch.float64)
    teachers, student = noise.softmax(-1), (sharpness * torch.randn(batch, classes, dtype=torch.float64)).softmax(-1)
    if kind == "duplicates":
        teachers = teachers[:, torch.randint(members, (members,))]
    elif kind == "mixture":
        student = (torch.rand(batch, members, 1, dtype=torch.float64).softmax(1) * teachers).sum(1)
    elif kind == "a teacher":
        student = teachers[:, 0]
    elif kind == "one-hot":
        teachers = torch.nn.functional.one_hot(torch.randint(classes, (batch, members)), classes).double()
    elif kind == "nearly agreeing":
        teachers = (noise[:, :1] + 10 ** float(-8 * torch.rand(1)) * noise).softmax(-1)
    return teachers, student


def programme(teachers: Tensor, student: Tensor) -> tuple[Tensor, Tensor]:
    """G `[B, M, M]` and b `[B, M]` of 1/2 |student - sum_m w_m teacher_m|^2."""
    return teachers @ teachers.mT, (teachers @ student.unsqueeze(-1)).squeeze(-1)


def objective(gram: Tensor, linear: Tensor, weights: Tensor) -> Tensor:
    return torch.einsum("...i,...ij,...j->...", weights, gram, weights) / 2 - (linear * weights).sum(-1)


def suboptimality(gram: Tensor, linear: Tensor, weights: Tensor, cap: float) -> Tensor:
    """An upper bound on how far the objective is from its minimum.

    A convex f lies above its tangents: f(w) - min f <= max_s f'(w)(w - s), and the feasible s with the least f'(w)s
    puts the cap on the smallest entries of f'(w) until the sum is one.
    """
    slope = (gram @ weights.unsqueeze(-1)).squeeze(-1) - linear
    full = min(int(1 / cap + 1e-9), slope.shape[-1])
    lowest = torch.zeros(slope.shape[-1], dtype=slope.dtype)
    lowest[:full] = cap
    if full < slope.shape[-1]:
        lowest[full] = max(1 - full * cap, 0.0)
    return (slope * weights).sum(-1) - (slope.sort(-1).values * lowest).sum(-1)


def assert_feasible(weights: Tensor, cap: float) -> None:
    assert float((weights.sum(-1) - 1).abs().max()) < 1e-12
    assert float(weights.min()) >= 0
    assert float(weights.max()) <= cap + 1e-12


def caps(members: int) -> list[float]:
    least = 1 / members
    room = 1 - least
    return [
        least,
        least + 1e-9 * room,
        least + 0.01 * room,
        least + 0.4 * room,
        1 / (members - 1),
        max(least, 0.6),
        1.0,
    ]


def exact(gram: np.ndarray[Any, Any], linear: np.ndarray[Any, Any], cap: float) -> tuple[float, np.ndarray[Any, Any]]:
    """The minimum, by solving the linear system of each choice of which weights are zero, at the cap and free."""
    members = len(linear)
    best, found = math.inf, np.full(members, np.nan)
    for state in itertools.product((0, 1, 2), repeat=members):
        w = np.where(np.array(state) == 1, cap, 0.0)
        free = [i for i, s in enumerate(state) if s == 2]
        n = len(free)
        if n:
            system = np.ones((n + 1, n + 1))
            system[:n, :n], system[n, n] = gram[np.ix_(free, free)], 0
            right = np.append(linear[free] - gram[free] @ w, 1 - w.sum())
            w[free] = np.linalg.lstsq(system, right, rcond=None)[0][:n]
        if abs(w.sum() - 1) > 1e-9 or w.min() < -1e-10 or w.max() > cap + 1e-10:
            continue
        value = w @ gram @ w / 2 - linear @ w
        if value < best:
            best, found = value, w
    return best, found


@pytest.mark.parametrize("members", [2, 3, 4, 8, 13, 16])
def test_certificate_of_thousands(members: int) -> None:
    """4,032 programmes for each M."""
    torch.manual_seed(members)
    for kind, cap in itertools.product(KINDS, caps(members)):
        drawn = [
            programme(*probabilities(kind, members, classes, sharpness, 8))
            for classes, sharpness in itertools.product((2, 10, 100), (0.003, 1.0, 6.0, 100.0))
        ]
        gram, linear = (torch.cat(parts) for parts in zip(*drawn, strict=True))
        weights = capped_simplex_weights(gram, linear, cap)
        assert_feasible(weights, cap)
        assert float(suboptimality(gram, linear, weights, cap).max()) < 1e-10


@pytest.mark.parametrize("members", [2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_exact_solutions(members: int, kind: str) -> None:
    torch.manual_seed(members)
    compared = 0
    for cap, sharpness in itertools.product(caps(members), (1.0, 5.0)):
        gram, linear = programme(*probabilities(kind, members, 10, sharpness, 3))
        found = capped_simplex_weights(gram, linear, cap)
        centre = torch.eye(members, dtype=torch.float64) - 1 / members
        curvature = torch.linalg.eigvalsh(centre @ gram @ centre)[:, 1]  # the first belongs to the vector of ones
        for g, b, w, c in zip(gram, linear, found, curvature, strict=True):
            value, weights = exact(g.numpy(), b.numpy(), cap)
            assert float(objective(g, b, w)) == pytest.approx(value, abs=1e-10)
            if c > 1e-3:
                compared += 1
                np.testing.assert_allclose(w.numpy(), weights, atol=1e-6)
    assert compared > 10 or kind in ("duplicates", "one-hot", "nearly agreeing")


@pytest.mark.parametrize("members", range(2, 17))
def test_a_general_solver(members: int) -> None:
    torch.manual_seed(members)
    for cap in caps(members)[2:]:
        gram, linear = programme(*probabilities("plain", members, 12, 4.0, 4))
        found = objective(gram, linear, capped_simplex_weights(gram, linear, cap))
        for g, b, value in zip(gram.numpy(), linear.numpy(), found.tolist(), strict=True):
            theirs = scipy.optimize.minimize(  # type: ignore[no-untyped-call]
                lambda w, g=g, b=b: w @ g @ w / 2 - b @ w,
                np.full(members, 1 / members),
                jac=lambda w, g=g, b=b: g @ w - b,
                bounds=[(0, cap)] * members,
                constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
                method="SLSQP",
                options={"ftol": 1e-14, "maxiter": 500},
            )
            assert value == pytest.approx(theirs.fun, abs=1e-6)
            assert value < theirs.fun + 1e-9


@settings(deadline=None, max_examples=60)
@given(
    members=st.integers(1, 16),
    classes=st.integers(2, 100),
    batch=st.integers(1, 3),
    tolerance=st.floats(0, 1),
    sharpness=st.floats(-4, 3).map(lambda power: 10**power),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**31),
)
def test_any_programme(
    members: int, classes: int, batch: int, tolerance: float, sharpness: float, kind: str, seed: int
) -> None:
    torch.manual_seed(seed)
    cap = 1 / members + tolerance * (1 - 1 / members)
    gram, linear = programme(*probabilities(kind, members, classes, sharpness, batch))
    weights = capped_simplex_weights(gram, linear, cap)
    assert weights.shape == (batch, members)
    assert_feasible(weights, cap)
    assert float(suboptimality(gram, linear, weights, cap).max()) < 1e-9


def test_steps_that_would_go_round_in_circles() -> None:
    """Among these is a programme on which the full second-order correction alternates between two points."""
    torch.manual_seed(0)
    probabilities("plain", 16, 3, 0.1, 4000)
    teachers, student = probabilities("plain", 16, 10, 5.0, 4000)
    teachers[:, 8:] = teachers[:, :1]
    gram, linear = programme(teachers, student)
    assert float(suboptimality(gram, linear, capped_simplex_weights(gram, linear, 1.0), 1.0).max()) < 1e-10


@pytest.mark.parametrize("members", [2, 3, 7, 16])
@pytest.mark.parametrize("sharpness", [1.0, 30.0])
def test_teachers_that_agree_have_equal_weights(members: int, sharpness: float) -> None:
    torch.manual_seed(0)
    one, student = probabilities("plain", 1, 10, sharpness, 20)
    equal = torch.full((20, members), 1 / members, dtype=torch.float64)
    weights = capped_simplex_weights(*programme(one.expand(-1, members, -1), student), max(0.6, 1 / members))
    torch.testing.assert_close(weights, equal, rtol=0, atol=1e-12)
    # and a rounding error in their favour changes nothing
    shaken = one * (1 + 2e-16 * torch.randn(20, members, 10, dtype=torch.float64))
    shaken = (shaken - one).transpose(0, 1)
    logits = one.log().transpose(0, 1)
    assert bool((shaken != 0).any())
    weights = teacher_weights(student.log()[None], logits + shaken, 1.0, 1.0)
    torch.testing.assert_close(weights, equal[None], rtol=0, atol=1e-12)


def test_the_smallest_cap_leaves_one_point() -> None:
    torch.manual_seed(0)
    for members in range(1, 17):
        gram, linear = programme(*probabilities("plain", members, 10, 3.0, 5))
        equal = torch.full((5, members), 1 / members, dtype=torch.float64)
        for cap in (1 / members, 1 / members - 1e-7):  # as it is, and as a lower precision may round it
            torch.testing.assert_close(capped_simplex_weights(gram, linear, cap), equal, rtol=0, atol=1e-12)


def test_one_teacher_has_the_weight_one_whatever_the_cap() -> None:
    student, teachers = torch.randn(1, 4, 5), torch.randn(1, 4, 5)
    torch.testing.assert_close(aekd(student, teachers, None), kd(student, teachers, None))


def test_two_teachers_in_closed_form() -> None:
    """The student's place on the segment between the teachers, kept within [1 - C, C]."""
    torch.manual_seed(0)
    teachers, student = probabilities("plain", 2, 6, 2.0, 200)
    a, b = teachers.unbind(1)
    place = ((student - b) * (a - b)).sum(-1) / ((a - b) ** 2).sum(-1)
    for cap in (0.5, 0.6, 1.0):
        weights = capped_simplex_weights(*programme(teachers, student), cap)
        torch.testing.assert_close(weights[:, 0], place.clamp(1 - cap, cap), rtol=0, atol=1e-7)


@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-6])
def test_teachers_that_nearly_agree(apart: float) -> None:
    """A student between two teachers has its place found, though their products differ in the last digits only."""
    torch.manual_seed(0)
    one = torch.randn(1, 20, 10, dtype=torch.float64)
    teachers = torch.cat((one, one + apart * torch.randn(1, 20, 10, dtype=torch.float64)))
    first, second = teachers.softmax(-1)
    weights = teacher_weights((0.3 * first + 0.7 * second).log()[None], teachers, 0.9, 1.0)
    expected = torch.tensor([0.3, 0.7], dtype=torch.float64).expand(1, 20, 2)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)


def test_batches_of_any_shape() -> None:
    torch.manual_seed(0)
    teachers, student = probabilities("plain", 3, 6, 2.0, 5)
    others = student.flip(0)
    gram, linear = programme(teachers, student)
    both = torch.stack((linear, programme(teachers, others)[1]))
    weights = capped_simplex_weights(gram, both, 0.6)
    assert weights.shape == (2, 5, 3)
    torch.testing.assert_close(weights[0], capped_simplex_weights(gram, linear, 0.6))
    torch.testing.assert_close(weights[0, 0], capped_simplex_weights(gram[0], linear[0], 0.6))
    order = torch.tensor([2, 0, 1])
    moved = capped_simplex_weights(gram[:, order][:, :, order], linear[:, order], 0.6)
    torch.testing.assert_close(moved, weights[0][:, order], rtol=0, atol=1e-9)
    assert capped_simplex_weights(gram[:0], linear[:0], 0.6).shape == (0, 3)


def test_members_of_a_student_are_weighed_apart() -> None:
    torch.manual_seed(0)
    student, teachers = 2 * torch.randn(3, 4, 6), 2 * torch.randn(5, 4, 6)
    both = teacher_weights(student, teachers, 0.5, 2.0)
    for m in range(3):
        torch.testing.assert_close(both[m], teacher_weights(student[m : m + 1], teachers, 0.5, 2.0)[0])
    p, t = (student / 2).double().softmax(-1), (teachers / 2).double().softmax(-1).transpose(0, 1)
    for m in range(3):
        assert float(suboptimality(*programme(t, p[m]), both[m], 0.5).max()) < 1e-10


def test_single_precision_where_a_device_has_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capped_simplex, "widest", lambda values: values.float())
    torch.manual_seed(0)
    for kind, members, sharpness in itertools.product(KINDS, (2, 5, 16), (0.003, 1.0, 30.0)):
        gram, linear = programme(*probabilities(kind, members, 10, sharpness, 50))
        weights = capped_simplex_weights(gram, linear, 0.7)
        assert weights.dtype == torch.float32
        assert float(suboptimality(gram, linear, weights.double(), 0.7).max()) < 1e-5


def test_autocast_rounds_nothing() -> None:
    torch.manual_seed(0)
    student, teachers = torch.randn(2, 4, 5), torch.randn(3, 4, 5)
    expected = aekd(student, teachers, None)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(aekd(student, teachers, None), expected)


@pytest.mark.parametrize("members", [1, 4])
def test_compiles_into_one_graph(members: int) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    gram, linear = programme(*probabilities("plain", members, 6, 2.0, 4))
    compiled = torch.compile(capped_simplex_weights, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(gram, linear, 1.0), capped_simplex_weights(gram, linear, 1.0))
    torch._dynamo.reset()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_runs_in_a_captured_graph() -> None:
    torch.manual_seed(0)
    teachers, student = probabilities("duplicates", 8, 10, 2.0, 64)
    gram, linear = (t.cuda() for t in programme(teachers, student))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        capped_simplex_weights(gram, linear, 0.6)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        weights = capped_simplex_weights(gram, linear, 0.6)
    other, again = (t.cuda() for t in programme(*probabilities("plain", 8, 10, 2.0, 64)))
    gram.copy_(other)
    linear.copy_(again)
    graph.replay()
    assert float(suboptimality(other.cpu(), again.cpu(), weights.cpu(), 0.6).max()) < 1e-10


@pytest.mark.parametrize("cap", [0.3, 0.0, -1.0, 1.1, math.nan])
def test_caps_that_leave_no_weights(cap: float) -> None:
    with pytest.raises(ValueError, match=r"cap: expected a largest weight C from 1/M = 0\.333333 to 1, got"):
        capped_simplex_weights(torch.eye(3), torch.zeros(3), cap)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_temperatures_of_the_weights(temperature: float) -> None:
    with pytest.raises(ValueError, match="weight_temperature: expected a positive number, got"):
        aekd(torch.zeros(1, 2, 3), torch.zeros(3, 2, 3), None, weight_temperature=temperature)
