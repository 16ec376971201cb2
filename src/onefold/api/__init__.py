"""The whole thing from Python."""

from onefold.api.distillation import distill
from onefold.api.evaluation import calibrated, evaluate

__all__ = ["calibrated", "distill", "evaluate"]
