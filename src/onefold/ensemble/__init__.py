"""Students and teachers: both return logits `[M, B, K]`."""

from onefold.ensemble.collapse import collapse, interpolate, subnetwork
from onefold.ensemble.plan import Layer, Report
from onefold.ensemble.student import BatchEnsemble, Plain, batch_ensemble
from onefold.ensemble.teachers import Teachers

__all__ = [
    "BatchEnsemble",
    "Layer",
    "Plain",
    "Report",
    "Teachers",
    "batch_ensemble",
    "collapse",
    "interpolate",
    "subnetwork",
]
