"""What an ensemble predicts, and how uncertain the prediction is."""

from __future__ import annotations

import torch
from torch import Tensor

from onefold.types import at_least_float32, check_logits


def log_mean_probabilities(logits: Tensor) -> Tensor:
    """The ensemble's prediction `[B, K]` from logits `[M, B, K]`: log( 1/M sum_m softmax(logits_m) ).

    Its softmax is the mean of the members' softmax. A single member gives its log-softmax, and members that agree
    give exactly what each of them does. Half-precision logits are evaluated in float32.
    """
    check_logits("logits", logits)
    if logits.shape[0] == 0:
        raise ValueError("logits: expected [M, B, K] with at least one member, got M = 0")
    members = torch.log_softmax(at_least_float32(logits), dim=-1)
    if members.shape[0] == 1:
        return members[0]
    # Not logsumexp - log M: the mean of numbers <= 1 cannot round to a probability above one.
    largest = members.detach().amax(dim=0)
    largest = torch.where(largest.isneginf(), 0.0, largest)
    return largest + (members - largest).exp().mean(dim=0).log()


def predictive_entropy(log_probabilities: Tensor) -> Tensor:
    """- sum_k p_k log p_k in nats, `[..., K]` to `[...]`; classes of probability zero contribute nothing."""
    finite = log_probabilities.masked_fill(log_probabilities.isneginf(), 0.0)
    return -(log_probabilities.exp() * finite).sum(dim=-1)
