"""Proxy-EnD2 against the Dirichlet divergence of an independent library, and where that breaks down."""

from __future__ import annotations

import mpmath
import pytest
import torch
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence

from onefold.methods import method_named, with_hyperparameters
from onefold.objectives import dirichlet_mean, proxy_end2
from onefold.objectives.proxy_end2 import digamma, excess, remainder


def concentrations(student: Tensor, teachers: Tensor) -> tuple[Tensor, Tensor]:
    """a and beta as the paper writes them, one added to both."""
    p = teachers.softmax(-1)
    mean = p.mean(0)
    disagreement = (mean * (mean.log() - p.log().mean(0))).sum(-1, keepdim=True)
    return student.exp() + 1, mean * (student.shape[-1] - 1) / 2 / disagreement + 1


@pytest.mark.parametrize("classes", [2, 10, 200])
@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
def test_the_dirichlet_divergence(classes: int, scale: float) -> None:
    torch.manual_seed(classes)
    student = scale * torch.randn(2, 6, classes, dtype=torch.float64)
    teachers = scale * torch.randn(4, 6, classes, dtype=torch.float64)
    a, beta = concentrations(student, teachers)
    expected = kl_divergence(Dirichlet(a), Dirichlet(beta.expand_as(a))) / beta.sum(-1)
    torch.testing.assert_close(proxy_end2(student, teachers, None, reduction="none"), expected, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(proxy_end2(student, teachers, None), expected.mean(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("temperature", [0.5, 4.0])
def test_the_temperature_is_in_teachers_and_student(temperature: float) -> None:
    torch.manual_seed(7)
    student = 3 * torch.randn(1, 6, 10, dtype=torch.float64)
    teachers = 3 * torch.randn(4, 6, 10, dtype=torch.float64)
    a, beta = concentrations(student / temperature, teachers / temperature)
    expected = temperature**2 * kl_divergence(Dirichlet(a), Dirichlet(beta.expand_as(a))) / beta.sum(-1)
    found = proxy_end2(student, teachers, None, temperature=temperature, reduction="none")
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    with pytest.raises(ValueError, match="temperature: expected"):
        proxy_end2(student, teachers, None, temperature=0.0)


def test_a_recipe_s_temperature_reaches_it() -> None:
    student, teachers = torch.randn(1, 6, 10), torch.randn(4, 6, 10)
    bound = with_hyperparameters(method_named("proxy-end2").objective, alpha=1.0, temperature=4.0, cap=0.6)
    assert torch.equal(bound(student, teachers, None), proxy_end2(student, teachers, None, temperature=4.0))


def test_the_best_student_is_the_target() -> None:
    teachers = torch.randn(3, 2, 5, dtype=torch.float64)
    _, beta = concentrations(torch.zeros(1, 2, 5, dtype=torch.float64), teachers)
    student = (beta - 1).log()[None].requires_grad_()
    loss = proxy_end2(student, teachers, None)
    assert float(loss.detach()) == pytest.approx(0, abs=1e-9)
    (gradient,) = torch.autograd.grad(loss, student)
    assert float(gradient.abs().max()) < 1e-9


@pytest.mark.parametrize("value", [1.0, 1.5, 3.0, 8.0, 9.99, 10.01, 12.0, 30.0, 1e3, 1e7, 1e30])
def test_the_special_functions(value: float) -> None:
    mpmath.mp.dps = 60
    log_a = torch.tensor(value, dtype=torch.float64).log()
    exact = mpmath.e ** mpmath.mpf(float(log_a))
    lgamma, psi = mpmath.loggamma(exact), mpmath.digamma(exact)
    assert float(digamma(log_a)) == pytest.approx(float(psi), rel=1e-13, abs=1e-13)
    assert float(excess(log_a)) == pytest.approx(float(lgamma - exact * psi + exact), rel=1e-13, abs=1e-13)
    assert float(remainder(log_a)) == pytest.approx(
        float(lgamma - exact * mpmath.log(exact) + exact), rel=1e-13, abs=1e-13
    )


@pytest.mark.parametrize("scale", [1.0, 22.0, 300.0])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 50.0])
def test_the_divergence_in_many_digits(scale: float, spread: float) -> None:
    """Concentrations of a hundred digits and more, which no library of doubles can form."""
    torch.manual_seed(3)
    student = scale * torch.randn(1, 1, 4, dtype=torch.float64)
    teachers = torch.randn(1, 1, 4, dtype=torch.float64) + spread * torch.randn(3, 1, 4, dtype=torch.float64)
    with mpmath.workdps(700):  # type: ignore[no-untyped-call]
        powers = [[mpmath.exp(mpmath.mpf(v)) for v in row] for row in teachers[:, 0].tolist()]
        members = [[v / sum(row) for v in row] for row in powers]
        p = [sum(column) / 3 for column in zip(*members, strict=True)]
        logs = [sum(mpmath.log(v) for v in column) / 3 for column in zip(*members, strict=True)]
        disagreement = sum(v * (mpmath.log(v) - log) for v, log in zip(p, logs, strict=True))
        beta = [v * 3 / 2 / disagreement + 1 for v in p]
        a = [mpmath.exp(mpmath.mpf(v)) + 1 for v in student[0, 0].tolist()]
        divergence = mpmath.loggamma(sum(a)) - mpmath.loggamma(sum(beta))
        for x, b in zip(a, beta, strict=True):
            divergence += mpmath.loggamma(b) - mpmath.loggamma(x)
            divergence += (x - b) * (mpmath.digamma(x) - mpmath.digamma(sum(a)))
        expected = float(divergence / sum(beta))
    assert float(proxy_end2(student, teachers, None)) == pytest.approx(expected, rel=1e-12, abs=1e-13)


def test_teachers_that_agree_completely() -> None:
    """beta goes to infinity: the limit is sum_k p_k (log p_k - psi(a_k) + psi(a_0))."""
    torch.manual_seed(0)
    student = torch.randn(1, 5, 10)
    teachers = torch.randn(1, 5, 10).expand(4, 5, 10)
    p, a = teachers[0].softmax(-1), student.exp() + 1
    limit = (p * (p.log() - torch.digamma(a) + torch.digamma(a.sum(-1, keepdim=True)))).sum(-1)
    torch.testing.assert_close(proxy_end2(student, teachers, None, reduction="none"), limit, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spread", [0.0, 1e-8, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("scale", [1.0, 10.0, 300.0, 1e4])
def test_single_precision_agrees_with_double(spread: float, scale: float) -> None:
    torch.manual_seed(1)
    base = torch.randn(1, 20, 10, dtype=torch.float64)
    teachers = (base + spread * torch.randn(4, 20, 10, dtype=torch.float64)).float().double()
    student = (scale * torch.randn(1, 20, 10, dtype=torch.float64)).clamp(-1e4, 1e4).float().double().requires_grad_()
    exact = proxy_end2(student, teachers, None, reduction="none")
    (slope,) = torch.autograd.grad(exact.sum(), student)
    single = student.detach().float().requires_grad_()
    rounded = proxy_end2(single, teachers.float(), None, reduction="none")
    (single_slope,) = torch.autograd.grad(rounded.sum(), single)
    torch.testing.assert_close(rounded.double(), exact.detach(), rtol=2e-4, atol=2e-4)
    torch.testing.assert_close(single_slope.double(), slope, rtol=2e-3, atol=1e-3)


def test_half_precision_inputs_lose_only_their_own_digits() -> None:
    torch.manual_seed(2)
    student, teachers = torch.randn(1, 5, 10).bfloat16(), torch.randn(4, 5, 10).bfloat16()
    assert torch.equal(proxy_end2(student, teachers, None), proxy_end2(student.float(), teachers.float(), None))


def test_prediction_is_the_mean_of_the_dirichlet() -> None:
    student = torch.randn(1, 5, 10, dtype=torch.float64)
    torch.testing.assert_close(dirichlet_mean(student).exp(), Dirichlet(student[0].exp() + 1).mean)
    both = torch.randn(2, 5, 10, dtype=torch.float64)
    expected = (Dirichlet(both[0].exp() + 1).mean + Dirichlet(both[1].exp() + 1).mean) / 2
    torch.testing.assert_close(dirichlet_mean(both).exp(), expected)
    large = torch.tensor([[[20.1, 20.5, 22.0]]], dtype=torch.float64)
    torch.testing.assert_close(dirichlet_mean(large).exp(), Dirichlet(large[0].exp() + 1).mean, rtol=1e-13, atol=0)
    huge = dirichlet_mean(torch.tensor([[[1e4, -1e4, 0.0]]]))
    assert bool(huge.isfinite().all())
