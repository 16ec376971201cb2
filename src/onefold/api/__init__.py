"""The Python interface: train, evaluate and calibrate."""

from onefold.api.distillation import distill
from onefold.api.evaluation import calibrated, evaluate

__all__ = ["calibrated", "distill", "evaluate"]
