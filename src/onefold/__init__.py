"""onefold turns a deep ensemble into one network."""

from onefold.api import distill, evaluate
from onefold.ensemble import Teachers, batch_ensemble, collapse, subnetwork
from onefold.metrics import calibrated

__all__ = ["Teachers", "batch_ensemble", "calibrated", "collapse", "distill", "evaluate", "subnetwork"]
