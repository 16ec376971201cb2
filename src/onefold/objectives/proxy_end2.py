"""Ensemble distribution distillation with a proxy Dirichlet (Proxy-EnD2, Ryabinin et al., 2021)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onefold.objectives.soft_cross_entropy import Reduction, check_hyperparameters, prepared, reduced
from onefold.types import at_least_float32, check_logits

SERIES_FROM = 10.0  # concentrations above this use the asymptotic series, which is exact to rounding there


def proxy_end2(
    student: Tensor,
    teachers: Tensor | None,
    labels: Tensor | None,  # noqa: ARG001
    *,
    temperature: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """tau^2 KL(Dir(a) || Dir(beta)) / beta_0, where a_k = e^{S_k / tau} + 1 and beta_k = p_k (K - 1)/2 / d + 1.

    p is the teachers' mean prediction and d = sum_j p_j (log p_j - 1/M sum_m log p_mj) their disagreement, both at the
    temperature tau. The last factor of the divergence is psi(a_k) - psi(a_0), where the paper prints psi(beta_k). The
    paper prints no tau, but its CIFAR-10 results are reproduced with the tau of its other methods and not without.
    """
    check_hyperparameters(1.0, temperature)
    student, teachers = (logits / temperature for logits in prepared(student, teachers))
    classes = student.shape[-1]
    if classes < 2:
        raise ValueError(f"student: expected at least 2 classes, got {classes}")
    log_members = teachers.log_softmax(-1)
    log_p = torch.logsumexp(log_members, 0) - math.log(teachers.shape[0])  # [B, K]
    disagreement = (log_p.exp() * (log_p - log_members.mean(0))).sum(-1, keepdim=True)
    # In terms of u = 2d / (K - 1): beta_k = p_k / u + 1 grows without bound as the teachers agree; u does not.
    u = (2 * disagreement / (classes - 1)).clamp(min=torch.finfo(student.dtype).tiny)
    share = (log_p.exp() + u) / (1 + classes * u)  # beta_k / beta_0
    log_u = u.log()
    log_beta = (log_p.exp() + u).log() - log_u
    log_beta_0 = (1 + classes * u).log() - log_u

    log_a = log_concentrations(student)  # [m, B, K]
    log_a_0 = torch.logsumexp(log_a, -1, keepdim=True)
    fit = (share * (share.log() - digamma(log_a) + digamma(log_a_0))).sum(-1)
    spread = excess(log_a_0).squeeze(-1) - excess(log_a).sum(-1)
    target = (remainder(log_beta).sum(-1) - remainder(log_beta_0).squeeze(-1)).expand_as(spread)
    divergence = fit + (spread + target) * (u / (1 + classes * u)).squeeze(-1)
    return reduced(temperature**2 * divergence, reduction)


def dirichlet_mean(logits: Tensor) -> Tensor:
    """log of (e^{S_k} + 1) / sum_j (e^{S_j} + 1), the mean of the student's Dirichlet: `[m, B, K]` to `[B, K]`."""
    check_logits("logits", logits)
    log_p = log_concentrations(at_least_float32(logits)).log_softmax(-1)
    return torch.logsumexp(log_p, 0) - math.log(logits.shape[0])


def log_concentrations(logits: Tensor) -> Tensor:
    """log(e^S + 1). By default softplus returns S itself above 20, where float64 can still tell them apart."""
    return torch.nn.functional.softplus(logits, threshold=40.0)


def small_and_inverse(log_a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where to use the series; a, clamped for the exact functions below it; and 1/a, clamped for the series."""
    border = math.log(SERIES_FROM)
    return log_a > border, log_a.clamp(max=border).exp(), (-log_a.clamp(min=border)).exp()


def digamma(log_a: Tensor) -> Tensor:
    """psi(a)."""
    large, a, inverse = small_and_inverse(log_a)
    z = inverse**2
    terms = z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132 - z * 691 / 32760)))))
    series = log_a.clamp(min=math.log(SERIES_FROM)) - inverse / 2 - terms
    return torch.where(large, series, torch.digamma(a))


def excess(log_a: Tensor) -> Tensor:
    """h(a) = log Gamma(a) - a psi(a) + a, in which the terms of order a log a and a cancel."""
    large, a, inverse = small_and_inverse(log_a)
    z = inverse**2
    constant = 0.5 * math.log(2 * math.pi) + 0.5
    log_large = log_a.clamp(min=math.log(SERIES_FROM))
    # (2k)/(2k - 1) of Stirling's coefficients: those of log Gamma plus those of a psi(a)
    terms = inverse * (1 / 6 - z * (1 / 90 - z * (1 / 210 - z * (1 / 210 - z * (5 / 594 - z * 691 / 30030)))))
    series = constant - log_large / 2 + terms
    return torch.where(large, series, torch.lgamma(a) - a * torch.digamma(a) + a)


def remainder(log_b: Tensor) -> Tensor:
    """q(b) = log Gamma(b) - b log b + b."""
    large, b, inverse = small_and_inverse(log_b)
    z = inverse**2
    log_large = log_b.clamp(min=math.log(SERIES_FROM))
    terms = inverse * (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - z * (1 / 1188 - z * 691 / 360360)))))
    series = 0.5 * (math.log(2 * math.pi) - log_large) + terms
    return torch.where(large, series, torch.lgamma(b) - b * b.log() + b)
