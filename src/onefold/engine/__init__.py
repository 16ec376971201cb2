"""Trains and evaluates: combines students, teachers, objectives and perturbations through their protocols alone."""

from onefold.engine.conduct import conduct
from onefold.engine.evaluate import evaluate_run
from onefold.engine.from_recipe import distill_run, train_teachers
from onefold.engine.losses import Diverged
from onefold.engine.networks.named import build_network
from onefold.engine.progress import Progress, Silent
from onefold.engine.result import Result
from onefold.engine.settings import Settings
from onefold.engine.signals import Interrupted
from onefold.engine.teachers import load_teachers
from onefold.engine.training import Job

__all__ = [
    "Diverged",
    "Interrupted",
    "Job",
    "Progress",
    "Result",
    "Settings",
    "Silent",
    "build_network",
    "conduct",
    "distill_run",
    "evaluate_run",
    "load_teachers",
    "train_teachers",
]
