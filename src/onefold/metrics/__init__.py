"""Metrics of predictions: plain tensor functions, and accumulators that stream batches in fixed memory."""

from onefold.metrics.accumulator import Accumulator
from onefold.metrics.bins import adaptive_ece
from onefold.metrics.calibrated import Calibrated, calibrated
from onefold.metrics.calibration import (
    evaluate_predictions,
    fit_temperature,
    fit_temperature_to,
    tempered,
    warning_of_temperature,
)
from onefold.metrics.classification import Classification, Reliability
from onefold.metrics.diversity import DiversityMeter, diversity
from onefold.metrics.ensemble import log_mean_probabilities, predictive_entropy
from onefold.metrics.histogram import EntropyHistogram
from onefold.metrics.ood import OutOfDistribution, detection

__all__ = [
    "Accumulator",
    "Calibrated",
    "Classification",
    "DiversityMeter",
    "EntropyHistogram",
    "OutOfDistribution",
    "Reliability",
    "adaptive_ece",
    "calibrated",
    "detection",
    "diversity",
    "evaluate_predictions",
    "fit_temperature",
    "fit_temperature_to",
    "log_mean_probabilities",
    "predictive_entropy",
    "tempered",
    "warning_of_temperature",
]
