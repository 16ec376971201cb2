"""Files of predictions: labels and log-probabilities of an evaluated split, as they are or packed into little room."""

from onefold.predictions.compact import packed
from onefold.predictions.files import Batch, Labels, Logits, Stored, stored, whole, write_plain

__all__ = ["Batch", "Labels", "Logits", "Stored", "packed", "stored", "whole", "write_plain"]
