"""Quadratic programmes on the simplex with capped weights, a batch at a time on the device."""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

from onefold.fast.ahead import only_asked
from onefold.fast.convolve import in_fast_step
from onefold.objectives.precision import widest

ITERATIONS = 20  # the hardest of 42,400 random programmes is at 1e-10 after 15; a converged one stands still
BACK_OFF = 0.995  # how much of the way to the nearest bound a step may go
MOST = 16  # members that the kernel takes: it has a programme's matrix in registers
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
    gram, linear = widest(gram), widest(linear)
    linear = linear.expand(torch.broadcast_shapes(linear.shape, gram.shape[:-1]))
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
    eps = torch.finfo(gram.dtype).eps
    flat = scale <= 8 * eps
    scale = torch.where(flat, 1.0, scale)

    # G is semi-definite to its rounding only, which centring does not take away: lift it by as much.
    eye = torch.eye(members, dtype=gram.dtype, device=gram.device)
    curve = curve + eye * (4 * members * eps * room * gram.abs().amax((-2, -1), keepdim=True))

    v = minimise(curve / scale.unsqueeze(-1), slope / scale, below, eye)
    return feasible(torch.where(flat, 1 / members, 1 / members + room * v), cap)


def check_cap(cap: float, members: int) -> float:
    """C, or a ValueError where no M weights up to C sum to one. One member has the weight one, whatever C."""
    if not 0 < cap <= 1 or (members > 1 and cap < 1 / members - ROUNDED):
        raise ValueError(f"cap: expected a largest weight C from 1/M = {1 / members:.6g} to 1, got {cap}")
    return max(cap, 1 / members)


def minimise(curve: Tensor, slope: Tensor, below: float, eye: Tensor) -> Tensor:
    """v `[..., M]` that minimises 1/2 v'Qv + c'v subject to sum v = 0, -below <= v <= 1."""
    # Q may be singular along 1, where v has no part: give it a curvature of one there.
    curve = curve + 1 / slope.shape[-1]

    # In every [..., 2, M] the bound above comes first: slacks 1 - v and v + below, here for v = 0.
    slack = torch.stack((torch.ones_like(slope), torch.full_like(slope, below)), -2)
    dual = signed(slope).clamp(min=0) + 1  # c = dual_below - dual_above, so the start is feasible
    return slacks_in_the_end(slack, dual, curve, slope, eye)[..., 1, :] - below


def on_gpu(slope: Tensor) -> bool:
    """Whether the kernel takes over, which needs Triton."""
    return slope.is_cuda and in_fast_step() and importlib.util.find_spec("triton") is not None


def slacks_in_the_end(slack: Tensor, dual: Tensor, curve: Tensor, slope: Tensor, eye: Tensor) -> Tensor:
    """All steps; in a fast step on a GPU by one kernel, which does the same."""
    if on_gpu(slope) and slope.shape[-1] <= MOST:
        from onefold.fast.interior_point import interior_point

        reached = interior_point(slack, dual, curve, slope, iterations=ITERATIONS, back_off=BACK_OFF)
        if not only_asked():
            return reached
    for _ in range(ITERATIONS):
        slack, dual = step(slack, dual, curve, slope, eye)
    return slack


@torch.compiler.nested_compile_region  # traced and compiled once, not once for each iteration
def step(slack: Tensor, dual: Tensor, curve: Tensor, slope: Tensor, eye: Tensor) -> tuple[Tensor, Tensor]:
    """Mehrotra's predictor and corrector, from slacks and duals to the next."""
    v = slack[..., 1, :] - slack[..., 1, :].mean(-1, keepdim=True)
    residual = matvec(curve, v) + slope - difference(dual)
    stiffness = dual / slack
    root = root_on_plane(curve + eye * stiffness.sum(-2).unsqueeze(-1), eye)
    distance = slack * dual
    gap = distance.mean((-2, -1), keepdim=True)
    dslack, ddual = newton(-distance, slack, stiffness, residual, root)
    length = longest(slack, dual, dslack, ddual)
    reached = ((slack + length * dslack) * (dual + length * ddual)).mean((-2, -1), keepdim=True)
    centre = reached**3 / gap**2  # Mehrotra's sigma = (reached / gap)^3 of the gap
    # The second-order term counts by how far its prediction held; in full it can send the steps in circles.
    dslack, ddual = newton(centre - distance - length * dslack * ddual, slack, stiffness, residual, root)
    # Past this gap a step would only stir rounding errors.
    length = BACK_OFF * longest(slack, dual, dslack, ddual) * (gap > torch.finfo(gap.dtype).eps / 64)
    return slack + length * dslack, dual + length * ddual


def newton(change: Tensor, slack: Tensor, stiffness: Tensor, residual: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
    """The step of slacks and duals that changes slack * dual, to first order, by `change`."""
    push = change / slack
    dslack = signed(matvec(root.mT, matvec(root, difference(push) - residual)))
    return dslack, push - stiffness * dslack


def signed(values: Tensor) -> Tensor:
    """What a change of v does to the two slacks, `[..., 2, M]`."""
    return torch.stack((-values, values), -2)


def difference(values: Tensor) -> Tensor:
    """The part of the bound below less that of the bound above, `[..., M]`."""
    return values[..., 1, :] - values[..., 0, :]


def longest(slack: Tensor, dual: Tensor, dslack: Tensor, ddual: Tensor) -> Tensor:
    """The longest step up to one that keeps slacks and duals non-negative, `[..., 1, 1]`."""
    return 1 / torch.maximum(-dslack / slack, -ddual / dual).amax((-2, -1), keepdim=True).clamp(min=1)


def root_on_plane(matrix: Tensor, eye: Tensor) -> Tensor:
    """R such that R'Rb minimises 1/2 x'Hx - b'x over sum x = 0, for H positive definite `[..., M, M]`.

    Elimination turns [H, 1] into [L', L^-1]: M steps of plain arithmetic, which neither check nor wait for
    anything. The root, not the inverse: near the solution H is as good as singular, and the inverse's errors
    would leave the plane.
    """
    members = matrix.shape[-1]
    # The diagonal, spread over twenty decades near the solution, is scaled to one; teachers that agree leave
    # a pivot of zero, which is kept off it.
    scale = (matrix * eye).sum(-1, keepdim=True).rsqrt()
    matrix = matrix * scale * scale.mT + 512 * torch.finfo(matrix.dtype).eps * eye
    rest, rows = torch.cat((matrix, eye * scale), -1), []
    for _ in range(members):
        row, rest = rest[..., :1, :], rest[..., 1:, :]
        pivot = row[..., :1].clamp(min=torch.finfo(matrix.dtype).eps)
        rows.append(row[..., -members:] * pivot.rsqrt())
        rest = rest[..., 1:] - rest[..., :1] * (row[..., 1:] / pivot)
    root = torch.cat(rows, -2)
    normal = root.sum(-1, keepdim=True)
    return root - normal * ((normal * root).sum(-2, keepdim=True) / (normal * normal).sum(-2, keepdim=True))


def matvec(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrix times vector, written out: small, and not to be rounded to half precision under autocast."""
    return (matrix * vector.unsqueeze(-2)).sum(-1)


def feasible(weights: Tensor, cap: float) -> Tensor:
    """Weights that miss the bounds or the sum by rounding, put right within the bounds."""
    weights = weights.clamp(0, cap)
    short = 1 - weights.sum(-1, keepdim=True)
    space = torch.where(short > 0, cap - weights, weights)
    return weights + short * space / space.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
