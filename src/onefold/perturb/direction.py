"""Gradients with respect to inputs, leaving the networks' parameters, gradients and modes untouched."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onefold.perturb.space import InputSpace, check_is_space
from onefold.types import readable


def input_gradient(function: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of a function's first result, values `[B]`, with respect to x, and its second result unchanged.

    Both are detached. In evaluation mode examples are independent, so the gradient of the sum gives each example its
    own gradient.
    """

    def summed(z: Tensor) -> tuple[Tensor, Tensor]:
        values, also = function(z)
        return values.sum(), also.detach()

    if torch.compiler.is_compiling():
        # torch.func.grad can be traced into one graph; no_grad keeps gradients of the parameters out of it.
        with torch.no_grad():
            gradient, also = torch.func.grad(summed, has_aux=True)(x.detach())
        return gradient.detach(), also
    with torch.enable_grad():
        z = x.detach().requires_grad_()
        total, also = summed(z)
        if not total.requires_grad:
            return torch.zeros_like(z), also  # the value does not depend on the input
        (gradient,) = torch.autograd.grad(total, z, materialize_grads=True)
    return gradient, also


def check_inputs(x: Tensor, space: InputSpace) -> None:
    """Refuses inputs that cannot be perturbed and, if their values can be read, those a perturbation would clip."""
    if not isinstance(x, Tensor):
        raise ValueError(f"x: expected a tensor of inputs, got {type(x).__name__}")
    check_is_space(space)
    if not x.is_floating_point():
        raise ValueError(f"x: a perturbation needs floating-point inputs, got {x.dtype}; {remedy_for(x.dtype)}")
    if not torch.compiler.is_compiling() and (torch.is_inference_mode_enabled() or x.is_inference()):
        raise ValueError("x: a perturbation needs gradients, which inference mode rules out; use torch.no_grad() there")
    if not space.looked_at and not torch.compiler.is_compiling():
        space.check(x) if readable(x) else space.check_shapes(x)


def check_ensemble(name: str, networks: object, remedy: str) -> None:
    """Refuses networks that are not put together to an ensemble, M networks called as one."""
    if not hasattr(networks, "members"):
        raise ValueError(f"{name}: expected networks called as one, got {type(networks).__name__}; {remedy}")


def check_teachers(teachers: object) -> None:
    check_ensemble("teachers", teachers, "give onefold.Teachers(networks)")


def remedy_for(dtype: torch.dtype) -> str:
    """What to do about inputs of a type that cannot be perturbed."""
    if dtype in (torch.int32, torch.int64):
        return (
            "token indices cannot be perturbed: choose perturbation='none', or give embeddings, and a network that "
            "begins with them"
        )
    return "divide images by 255"
