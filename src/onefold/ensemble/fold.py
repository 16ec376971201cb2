"""Folds a converted network, at one point of its members' subspace, into an ordinary network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from onefold.ensemble import fast_path
from onefold.ensemble.copied import copied
from onefold.ensemble.layers import to_original
from onefold.ensemble.rank_one import RankOne


def folded(net: nn.Module, coefficients: Sequence[float]) -> nn.Module:
    """theta o (sum_m c_m r_m s_m^T) in a copy of the original class with the original state_dict keys."""
    net = copied(net)
    layers = [module for module in net.modules() if isinstance(module, RankOne)]
    done: set[int] = set()  # a tied weight is folded once
    with torch.no_grad():
        for layer in layers:
            for name in layer.weight_names:
                weight = getattr(layer, name)
                if id(weight) in done:
                    continue
                done.add(id(weight))
                exact = torch.promote_types(weight.dtype, torch.float32)
                weight.copy_(weight.to(exact) * layer.combined(coefficients, name, exact))
    for layer in layers:
        to_original(layer)
    fast_path.give_back(net)
    return net
