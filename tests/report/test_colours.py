"""Colours of lines, as people see them who lack one kind of cones."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import onefold.report
from onefold.report.pictures.picture import PRINTED, SERIES

Colours = npt.NDArray[np.float64]
# Machado, Oliveira and Fernandes (2009), severity 1, for linear red, green and blue.
SIGHT: dict[str, Any] = {
    "all cones": np.eye(3),
    "no long": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no middle": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no short": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


def linear(colours: list[str]) -> Colours:
    """sRGB as light."""
    values = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(light: Colours) -> Colours:
    """CIE L*a*b*, in which a distance of two or so can just be seen."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], LUMINANCE, [0.0193, 0.1192, 0.9505]])
    xyz = np.clip(light, 0, 1) @ to_xyz.T / np.array([0.9505, 1, 1.089])
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116).T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def contrast(colours: list[str], background: str) -> Colours:
    one, other = linear(colours) @ LUMINANCE, linear([background]) @ LUMINANCE
    ratio: Colours = (np.maximum(one, other) + 0.05) / (np.minimum(one, other) + 0.05)
    return ratio


def palettes() -> dict[str, tuple[list[str], str]]:
    """The lines' colours, ink too, and what they stand on: of the page in the light, in the dark, and of files."""
    css = (Path(onefold.report.__file__).parent / "page.css").read_text()
    light, dark = css.split("@media screen and (prefers-color-scheme: dark)")
    found = {"files": ([*SERIES, PRINTED.ink], "#ffffff")}
    for name, part in (("light", light), ("dark", dark)):
        names = [*(f"s{k}" for k in range(len(SERIES))), "ink"]
        series = [re.findall(rf"--{name}: (#[0-9a-f]{{6}})", part)[0] for name in names]
        found[name] = series, re.findall(r"--card: (#[0-9a-f]{6})", part)[0]
    return found


@pytest.mark.parametrize("name", ["light", "dark", "files"])
def test_everybody_tells_them_apart(name: str) -> None:
    series, background = palettes()[name]
    assert len(set(series)) == len(SERIES) + 1
    for sight, matrix in SIGHT.items():
        seen = lab(linear(series) @ np.array(matrix).T)
        for one, other in itertools.combinations(range(len(series)), 2):
            assert np.linalg.norm(seen[one] - seen[other]) > 15, (sight, series[one], series[other])
    assert contrast(series, background).min() > (2.2 if name == "files" else 3)


def test_some_colours_would_not_do() -> None:
    """Orange and a brown like it, for who lacks the middle cones."""
    seen = lab(linear(["#d55e00", "#b87a00"]) @ np.array(SIGHT["no middle"]).T)
    assert np.linalg.norm(seen[0] - seen[1]) < 3
