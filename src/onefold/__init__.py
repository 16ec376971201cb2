"""onefold turns a deep ensemble into one network."""

from onefold.ensemble import Teachers, batch_ensemble, collapse, subnetwork

__all__ = ["Teachers", "batch_ensemble", "collapse", "subnetwork"]
