"""Objectives: losses as pure functions of logits."""

from onefold.objectives.aekd import aekd
from onefold.objectives.capped_simplex import capped_simplex_weights
from onefold.objectives.cross_entropy import cross_entropy
from onefold.objectives.kd import kd
from onefold.objectives.one_to_one import one_to_one
from onefold.objectives.proxy_end2 import dirichlet_mean, proxy_end2

__all__ = ["aekd", "capped_simplex_weights", "cross_entropy", "dirichlet_mean", "kd", "one_to_one", "proxy_end2"]
