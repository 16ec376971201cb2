"""Cross-entropy, KD, one-to-one and AE-KD against plain loops, and what holds for every objective."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onefold.objectives import aekd, cross_entropy, kd, one_to_one, proxy_end2
from onefold.objectives.aekd import teacher_weights

M, B, K = 3, 4, 5
OBJECTIVES: dict[str, Callable[..., Tensor]] = {
    "cross_entropy": cross_entropy,
    "kd": kd,
    "one_to_one": one_to_one,
    "aekd": aekd,
    "proxy_end2": proxy_end2,
}
parametrize = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)


def logits(members: int = M, seed: int = 0, scale: float = 3.0) -> Tensor:
    return scale * torch.randn(members, B, K, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


LABELS = torch.tensor([0, 4, 2, 2])


def softmax(row: Tensor, tau: float) -> list[float]:
    top = float(row.max())
    powers = [math.exp((float(v) - top) / tau) for v in row]
    return [p / sum(powers) for p in powers]


def entropy(p: list[float], q: list[float]) -> float:
    """H[p, q]."""
    return -sum(a * math.log(b) for a, b in zip(p, q, strict=True))


def one_hot(label: int) -> list[float]:
    return [float(k == label) for k in range(K)]


@pytest.mark.parametrize(
    ("alpha", "tau", "label_tau"), [(1.0, 4.0, None), (0.9, 20.0, None), (0.3, 2.0, 1.0), (0.0, 1.0, None)]
)
def test_kd_and_one_to_one(alpha: float, tau: float, label_tau: float | None) -> None:
    student, teachers = logits(M, 1), logits(M, 2)
    hyper: dict[str, Any] = {"alpha": alpha, "temperature": tau, "label_temperature": label_tau}
    mean = torch.zeros(M, B, dtype=torch.float64)
    own = torch.zeros(M, B, dtype=torch.float64)
    for m in range(M):
        for b in range(B):
            q = softmax(student[m, b], tau)
            hard = (1 - alpha) * entropy(one_hot(int(LABELS[b])), softmax(student[m, b], label_tau or tau))
            soft = [tau**2 * entropy(softmax(teachers[t, b], tau), q) for t in range(M)]
            mean[m, b] = hard + alpha * sum(soft) / M
            own[m, b] = hard + alpha * soft[m]
    torch.testing.assert_close(kd(student, teachers, LABELS, reduction="none", **hyper), mean)
    torch.testing.assert_close(kd(student, teachers, LABELS, **hyper), mean.mean())
    torch.testing.assert_close(one_to_one(student, teachers, LABELS, reduction="none", **hyper), own)
    torch.testing.assert_close(one_to_one(student, teachers, LABELS, **hyper), own.mean())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(smoothing: float) -> None:
    student = logits()
    loop = torch.tensor(
        [
            [
                entropy(
                    [(1 - smoothing) * y + smoothing / K for y in one_hot(int(LABELS[b]))], softmax(student[m, b], 1)
                )
                for b in range(B)
            ]
            for m in range(M)
        ],
        dtype=torch.float64,
    )
    torch.testing.assert_close(cross_entropy(student, None, LABELS, label_smoothing=smoothing, reduction="none"), loop)
    torch.testing.assert_close(cross_entropy(student, None, LABELS, label_smoothing=smoothing), loop.mean())


def test_aekd() -> None:
    student, teachers, tau = logits(2, 1), logits(M, 2), 4.0
    weights = teacher_weights(student, teachers, 0.6, 1.0)
    loop = torch.zeros(2, B, dtype=torch.float64)
    for m in range(2):
        for b in range(B):
            w, p = weights[m, b].tolist(), softmax(student[m, b], 1)
            q = [softmax(teachers[t, b], 1) for t in range(M)]
            assert sum(w) == pytest.approx(1)
            assert min(w) >= 0
            assert max(w) <= 0.6 + 1e-12
            # no feasible neighbour is nearer to the student
            far = distance(p, q, w)
            for i in range(M):
                for j in range(M):
                    step = 1e-3
                    if i != j and w[i] >= step and w[j] <= 0.6 - step:
                        moved = [v - step * (t == i) + step * (t == j) for t, v in enumerate(w)]
                        assert distance(p, q, moved) >= far - 1e-9
            soft = [tau**2 * entropy(softmax(teachers[t, b], tau), softmax(student[m, b], tau)) for t in range(M)]
            loop[m, b] = sum(a * s for a, s in zip(w, soft, strict=True))
    torch.testing.assert_close(aekd(student, teachers, LABELS, temperature=tau, reduction="none"), loop)


def distance(p: list[float], q: list[list[float]], w: list[float]) -> float:
    return sum((p[k] - sum(w[t] * q[t][k] for t in range(M))) ** 2 for k in range(K)) / 2


def test_aekd_with_the_smallest_cap_is_kd() -> None:
    student, teachers = logits(1, 1), logits(M, 2)
    hyper: dict[str, Any] = {"alpha": 0.7, "temperature": 2.0, "reduction": "none"}
    torch.testing.assert_close(
        aekd(student, teachers, LABELS, cap=1 / M, **hyper), kd(student, teachers, LABELS, **hyper)
    )


@parametrize
def test_gradients_reach_the_student_alone(objective: Callable[..., Tensor]) -> None:
    student, teachers = logits(M, 1).requires_grad_(), logits(M, 2).requires_grad_()
    objective(student, teachers, LABELS).backward()
    assert student.grad is not None
    assert bool((student.grad != 0).any())
    assert teachers.grad is None
    if objective is not aekd:  # its weights are held, which finite differences do not know
        assert torch.autograd.gradcheck(lambda s: objective(s, teachers, LABELS), (logits(M, 1).requires_grad_(),))


@parametrize
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e2, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_finite_for_logits_of_any_size(objective: Callable[..., Tensor], scale: float, dtype: torch.dtype) -> None:
    for seed in range(4):
        student = (logits(M, seed) / 3 * scale).clamp(-1e4, 1e4).to(dtype).requires_grad_()
        teachers = (logits(M, seed + 9) / 3 * scale).clamp(-1e4, 1e4).to(dtype)
        for targets in (teachers, student.detach(), teachers[:1].expand_as(teachers), -teachers):
            loss = objective(student, targets, LABELS)
            assert loss.dtype == torch.float32
            (gradient,) = torch.autograd.grad(loss, student)
            assert bool(loss.isfinite())
            assert bool(gradient.isfinite().all())


@parametrize
@pytest.mark.parametrize("value", [-1e4, 0.0, 1e4])
def test_finite_for_one_extreme_logit(objective: Callable[..., Tensor], value: float) -> None:
    for s in (-1e4, 0.0, 1e4):
        student, teachers = torch.zeros(M, B, K), torch.zeros(M, B, K)
        student[..., 0], teachers[..., 1] = s, value
        student.requires_grad_()
        loss = objective(student, teachers, LABELS)
        (gradient,) = torch.autograd.grad(loss, student)
        assert bool(loss.isfinite())
        assert bool(gradient.isfinite().all())


@parametrize
@settings(deadline=None, max_examples=12)
@given(
    members=st.integers(1, 5),
    batch=st.integers(1, 3),
    classes=st.sampled_from([2, 7, 1000]),
    student_dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    teacher_dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_shapes_and_mixed_dtypes(
    objective: Callable[..., Tensor],
    members: int,
    batch: int,
    classes: int,
    student_dtype: torch.dtype,
    teacher_dtype: torch.dtype,
) -> None:
    student, teachers = torch.randn(members, batch, classes), torch.randn(members, batch, classes)
    labels = torch.randint(classes, (batch,))
    each = objective(student.to(student_dtype), teachers.to(teacher_dtype), labels, reduction="none")
    assert each.shape == (members, batch)
    assert each.dtype in (torch.float32, torch.float64)
    assert bool(each.isfinite().all())


@parametrize
def test_compiles_into_one_graph(objective: Callable[..., Tensor]) -> None:
    torch._dynamo.reset()
    student, teachers = logits(M, 1).float(), logits(M, 2).float()
    compiled = torch.compile(objective, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(student, teachers, LABELS), objective(student, teachers, LABELS))
    torch._dynamo.reset()


@parametrize
def test_errors(objective: Callable[..., Tensor]) -> None:
    student, teachers = logits(), logits()
    broken = student.clone()
    broken[0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match="student: expected finite logits, got NaN"):
        objective(broken, teachers, LABELS)
    with pytest.raises(ValueError, match=r"student: expected logits \[M, B, K\], got shape \[4, 5\]"):
        objective(student[0], teachers, LABELS)
    with pytest.raises(ValueError, match=r"student: expected floating-point logits, got torch\.int64"):
        objective(student.long(), teachers, LABELS)
    with pytest.raises(ValueError, match="reduction: expected 'mean' or 'none', got 'sum'"):
        objective(student, teachers, LABELS, reduction="sum")
    if objective is cross_entropy:
        return
    with pytest.raises(ValueError, match="teachers: expected finite logits, got NaN"):
        objective(student, broken, LABELS)
    with pytest.raises(ValueError, match="student has 5 classes and the teachers have 3"):
        objective(student, teachers[..., :3], LABELS)
    with pytest.raises(ValueError, match="teachers: expected logits"):
        objective(student, None, LABELS)


@pytest.mark.parametrize("objective", [kd, one_to_one, aekd], ids=["kd", "one_to_one", "aekd"])
def test_errors_of_hyperparameters_and_labels(objective: Callable[..., Tensor]) -> None:
    student, teachers = logits(), logits()
    with pytest.raises(ValueError, match=r"alpha: expected a value from 0 to 1, got 1\.5"):
        objective(student, teachers, LABELS, alpha=1.5)
    with pytest.raises(ValueError, match=r"temperature: expected a positive number, got 0"):
        objective(student, teachers, LABELS, temperature=0)
    with pytest.raises(ValueError, match="labels: expected classes 0 to 4, got values from 0 to 7"):
        objective(student, teachers, torch.tensor([0, 7, 1, 1]), alpha=0.5)
    with pytest.raises(ValueError, match=r"labels: expected shape \[4\], got \[3\]"):
        objective(student, teachers, LABELS[:3], alpha=0.5)
    with pytest.raises(ValueError, match=r"labels: expected class indices \[B\] where alpha is below 1"):
        objective(student, teachers, None, alpha=0.5)
    objective(student, teachers, None, alpha=1.0)


def test_other_errors() -> None:
    with pytest.raises(ValueError, match="student: expected 3 members, one for each teacher, got 1"):
        one_to_one(logits(1), logits(), LABELS)
    with pytest.raises(ValueError, match=r"cap: expected a largest weight C from 1/M = 0\.333333 to 1, got 0\.2"):
        aekd(logits(1), logits(), LABELS, cap=0.2)
    with pytest.raises(ValueError, match="labels: expected classes 0 to 4"):
        cross_entropy(logits(), None, torch.tensor([0, 1, 2, -1]))
    with pytest.raises(ValueError, match="labels: expected integer class indices"):
        cross_entropy(logits(), None, torch.rand(4))
    with pytest.raises(ValueError, match="at least 2 classes, got 1"):
        proxy_end2(logits()[..., :1], logits()[..., :1], LABELS)
