"""Checks of what a network is built from."""

from __future__ import annotations

from numbers import Integral

from onefold.models.standardize import ChannelStatistics


def check_count(name: str, value: object, least: int) -> None:
    """Refuses what is not a whole number of at least `least`."""
    if not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name}: expected an integer of at least {least}, got {value!r}")


def check_channels(statistics: ChannelStatistics, channels: int) -> None:
    """Refuses statistics of another kind of input than the network takes."""
    if statistics.channels != channels:
        raise ValueError(f"statistics: expected those of {channels} channels, got {statistics.channels}")
