"""Common corruptions (Hendrycks and Dietterich, 2019): generated for images of any size, or read as published."""

from __future__ import annotations

from onefold.data.corrupt.apply import corrupt
from onefold.data.corrupt.published import Corrupted, published
from onefold.data.corrupt.severities import CORRUPTIONS, EXTRA

__all__ = ["CORRUPTIONS", "EXTRA", "Corrupted", "corrupt", "published"]
