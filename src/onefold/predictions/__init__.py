"""Prediction files: labels and log-probabilities of an evaluated split, in plain or compact form."""

from onefold.predictions.compact import packed
from onefold.predictions.files import Batch, Labels, Logits, Stored, stored, whole, write_plain

__all__ = ["Batch", "Labels", "Logits", "Stored", "packed", "stored", "whole", "write_plain"]
