"""Checks of the arguments that networks are built from."""

from __future__ import annotations

from numbers import Integral

from onefold.models.standardize import ChannelStatistics


def check_count(name: str, value: object, least: int) -> None:
    """Refuses anything but an integer of at least `least`."""
    if not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name}: expected an integer of at least {least}, got {value!r}")


def check_channels(statistics: ChannelStatistics, channels: int) -> None:
    """Refuses statistics whose number of channels differs from the network's."""
    if statistics.channels != channels:
        raise ValueError(f"statistics: expected those of {channels} channels, got {statistics.channels}")
