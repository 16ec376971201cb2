"""Quadratic programmes on the simplex with capped weights, a batch at a time on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from onefold.objectives.precision import widest

MINP=1e-15
REG=1e-13
REF=0
CEN=True
ITERATIONS = 20  # twice what the hardest of 100,000 random programmes needs; a converged one stands still
BACK_OFF = 0.995  # how much of the way to the nearest bound a step may go
ROUNDED = 1e-6  # a cap of 1/M that was rounded to single precision is still 1/M


@torch.no_grad()
def capped_simplex_weights(gram: Tensor, linear: Tensor, cap: float) -> Tensor:
    """The weights w `[..., M]` of the capped simplex that minimise 1/2 w'Gw - b'w, in float64.

        min_w 1/2 w'Gw - b'w   subject to   sum_m w_m = 1,  0 <= w_m <= C

    `gram` is G `[..., M, M]` (positive semi-definite, singular or not), `linear` is b `[..., M]`, both of the
    order of one (products of probability vectors), `cap` is C in [1/M, 1]. With M = 1 the weight is one,
    whatever C. Where the objective is flat to rounding (teachers that agree) the weights are equal.

    Mehrotra's predictor-corrector interior point method from a start that is feasible in the primal and in the
    dual, for a fixed number of steps without a look at the values: it never waits for the host.
    """
    members = linear.shape[-1]
    cap = check_cap(cap, members)
    gram, linear = torch.broadcast_tensors(widest(gram), widest(linear).unsqueeze(-1))
    linear = linear[..., 0]
    if members == 1:
        return torch.ones_like(linear)

    # w = 1/M + room v with sum v = 0 and v <= 1: well scaled however near C is to 1/M, where w = 1/M remains.
    # v >= -(M - 1) follows, so a lower bound further away than M is as good as none and is held at M.
    room = cap - 1 / members
    below = members if room * members**2 <= 1 else 1 / (room * members)
    # Only differences between the weights count, so rows and columns are centred.
    slope = gram.mean(-1) - linear
    slope = slope - slope.mean(-1, keepdim=True)
    curve = gram - gram.mean(-1, keepdim=True)
    curve = room * (curve - curve.mean(-2, keepdim=True))
    scale = torch.maximum(curve.abs().amax((-2, -1)), slope.abs().amax(-1)).unsqueeze(-1)
    flat = scale <= 8 * torch.finfo(scale.dtype).eps
    scale = torch.where(flat, 1.0, scale)

    v = minimise(curve / scale.unsqueeze(-1), slope / scale, below)
    return feasible(torch.where(flat, 1 / members, 1 / members + room * v), cap)


def check_cap(cap: float, members: int) -> float:
    """C, or the ValueError that no M weights below C sum to one; any C up to one will do for one member."""
    if not 0 < cap <= 1 or (members > 1 and cap < 1 / members - ROUNDED):
        raise ValueError(f"cap: expected a largest weight C from 1/M = {1 / members:.6g} to 1, got {cap}")
    return max(cap, 1 / members)


def minimise(curve: Tensor, slope: Tensor, below: float) -> Tensor:
    """v `[..., M]` that minimises 1/2 v'Qv + c'v subject to sum v = 0, -below <= v <= 1."""
    members = slope.shape[-1]
    eye = torch.eye(members, dtype=slope.dtype, device=slope.device)
    eps = torch.finfo(slope.dtype).eps
    # Q may be singular along 1, where v has no part: give it a curvature of one there.
    curve = curve + 1 / members
    toward = torch.tensor([[-1.0], [1.0]], dtype=slope.dtype, device=slope.device)  # the bounds: above, below

    v = torch.zeros_like(slope)
    slack = torch.stack((torch.ones_like(slope), torch.full_like(slope, below)), -2)  # [..., 2, M]
    dual = (toward * slope.unsqueeze(-2)).clamp(min=0) + 1  # c = dual_below - dual_above: feasible
    for _ in range(ITERATIONS):
        stiffness = dual / slack
        hessian = curve + eye * stiffness.sum(-2).unsqueeze(-1)
        hessian = hessian + REG * eye * hessian
        inverse = inverse_on_plane(hessian, eye)
        ones=inverse.sum(-1)
        residual = matvec(curve, v) + slope - (toward * dual).sum(-2)

        def newton(
            wanted: Tensor,
            slack: Tensor = slack,
            stiffness: Tensor = stiffness,
            inverse: Tensor = inverse,
            residual: Tensor = residual,
        ) -> tuple[Tensor, Tensor, Tensor]:
            """The step after which slack * dual has, to first order, changed by `wanted`."""
            push = wanted / slack
            rhs = (toward * push).sum(-2) - residual
            def f(r):
                t = matvec(inverse, r)
                t = t - ones * ((t*ones).sum(-1, keepdim=True)/ (ones*ones).sum(-1,keepdim=True))
                return matvec(inverse.mT, t)
            dv = f(rhs)
            for _ in range(REF):
                dv = dv + f(rhs-matvec(hessian,dv))
            dslack = toward * dv.unsqueeze(-2)
            return dv, dslack, push - stiffness * dslack

        product = slack * dual
        gap = product.mean((-2, -1), keepdim=True)
        _, dslack, ddual = newton(-product)
        length = longest(slack, dual, dslack, ddual)
        reached = ((slack + length * dslack) * (dual + length * ddual)).mean((-2, -1), keepdim=True)
        centre = reached**3 / gap**2  # sigma mu, with Mehrotra's sigma = (reached / gap)^3
        dv, dslack, ddual = newton(centre - product - dslack * ddual)
        # A converged programme stands still: past this gap a step would only stir rounding errors.
        length = torch.where(gap > eps / 64, BACK_OFF * longest(slack, dual, dslack, ddual), 0.0)
        v = v + length[..., 0] * dv
        slack, dual = slack + length * dslack, dual + length * ddual
    return v


def longest(slack: Tensor, dual: Tensor, dslack: Tensor, ddual: Tensor) -> Tensor:
    """The longest step up to one that keeps slacks and duals non-negative, `[..., 1, 1]`."""
    return 1 / torch.maximum(-dslack / slack, -ddual / dual).amax((-2, -1), keepdim=True).clamp(min=1)


def inverse_on_plane(matrix: Tensor, eye: Tensor) -> Tensor:
    """X with Xr the minimiser of 1/2 x'Hx - r'x over sum x = 0, for H positive definite `[..., M, M]`.

    Gauss-Jordan elimination: M steps of plain arithmetic, which neither check nor wait for anything. The
    diagonal is scaled to one first, since that of an interior point method spreads over twenty decades.
    """
    root = matrix.diagonal(dim1=-2, dim2=-1).rsqrt()
    M = matrix.shape[-1]
    A = torch.cat((matrix * root.unsqueeze(-1) * root.unsqueeze(-2), eye*root.unsqueeze(-1)), -1)
    idx = torch.arange(M)[:,None]
    rows=[]
    for k in range(M):
        col = A[..., k:k+1]
        row = A[..., k:k+1,:]
        rows.append(row * col[...,k:k+1,:].clamp(min=MINP).rsqrt())
        A = A - col*torch.where(idx>k, 1., 0.)*row / col[...,k:k+1,:].clamp(min=MINP)
    return torch.cat(rows, -2)[..., M:]

def matvec(matrix: Tensor, vector: Tensor) -> Tensor:
    """Written out: a matrix product would be rounded to half precision under autocast."""
    return (matrix * vector.unsqueeze(-2)).sum(-1)


def feasible(weights: Tensor, cap: float) -> Tensor:
    """Weights that miss the bounds or the sum by rounding, put right within the bounds."""
    weights = weights.clamp(0, cap)
    short = 1 - weights.sum(-1, keepdim=True)
    space = torch.where(short > 0, cap - weights, weights)
    return weights + short * space / space.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
