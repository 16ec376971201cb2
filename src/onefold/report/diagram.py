"""A reliability diagram as SVG that can stand inside a page."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from onefold.metrics import Reliability

# Stand-ins that become the page's own colours, so that a picture follows the page into the dark.
COLOURS = {
    "#010203": "var(--ink)",
    "#040506": "var(--faint)",
    "#070809": "var(--accuracy)",
    "#0a0b0c": "var(--gap)",
}
INK, FAINT, ACCURACY, GAP = COLOURS
FEW = 10  # answers in a bin, below which its bar is drawn pale
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.size": 10.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": INK,
    "ytick.color": INK,
}


def reliability_svg(bins: Reliability, name: str) -> str:
    """Accuracy against confidence in each bin, and how many of the answers fall into it."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(3.4, 3.9), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        upper, lower = axes
        draw_gaps(upper, bins)
        draw_shares(lower, bins)
        for part in (upper, lower):
            part.patch.set_alpha(0)
            part.spines[["top", "right"]].set_visible(False)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return embedded(drawn.getvalue(), described(bins, name), name)


def draw_gaps(axes: Axes, bins: Reliability) -> None:
    """Bars as high as the accuracy, and the way from there to the confidence."""
    width = 1 / len(bins.count)
    for index, confidence, accuracy in filled(bins):
        middle = (index + 0.5) * width
        weight = 1.0 if int(bins.count[index]) >= FEW else 0.4
        axes.bar(middle, accuracy, width=width * 0.84, color=ACCURACY, linewidth=0, alpha=weight)
        low, high = sorted((accuracy, confidence))
        axes.bar(middle, high - low, bottom=low, width=width * 0.84, fill=False, edgecolor=GAP, alpha=weight)
        sides = [index * width, (index + 1) * width]
        axes.plot(sides, [confidence, confidence], color=GAP, linewidth=2.5, alpha=weight)
    axes.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])


def draw_shares(axes: Axes, bins: Reliability) -> None:
    """The share of the answers in each bin, in percent."""
    width = 1 / len(bins.count)
    total = int(bins.count.sum())
    for index, count in enumerate(bins.count.tolist()):
        axes.bar((index + 0.5) * width, 100 * count / total, width=width * 0.86, color=FAINT, linewidth=0)
    axes.set(ylim=(0, 100), xlabel="confidence", ylabel="share, %")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
    axes.set_yticks([0, 50, 100])


def filled(bins: Reliability) -> list[tuple[int, float, float]]:
    """Index, confidence and accuracy of the bins that hold answers."""
    pairs = zip(bins.confidence.tolist(), bins.accuracy.tolist(), strict=True)
    return [(index, c, a) for index, (c, a) in enumerate(pairs) if not math.isnan(c)]


def described(bins: Reliability, name: str) -> str:
    """What the picture shows, in words."""
    count = bins.count.tolist()
    total = sum(count)
    widest = max(filled(bins), key=lambda entry: abs(entry[1] - entry[2]) * count[entry[0]])
    index, confidence, accuracy = widest
    direction = "too sure" if confidence > accuracy else "not sure enough"
    return (
        f"Reliability diagram of {name}, {total:,} answers in {len(count)} bins. "
        f"{100 * count[-1] / total:.0f}% of the answers are in the most confident bin. The bin that adds most to the "
        f"calibration error is that of confidence {index / len(count):.2f} to {(index + 1) / len(count):.2f}: mean "
        f"confidence {confidence:.3f}, accuracy {accuracy:.3f}, {direction}."
    )


def embedded(svg: str, description: str, name: str) -> str:
    """matplotlib's file as an element: no prolog, no metadata, no size of its own, nothing that names a server."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    head, rest = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None, "matplotlib writes the size of a drawing"
    for stand_in, colour in COLOURS.items():
        rest = rest.replace(stand_in, colour)
    # The same label in several drawings of a page would be one target: every name gets the drawing's own prefix.
    prefix = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    rest = re.sub(r'\bid="', f'id="{prefix}-', rest)
    rest = re.sub(r'(href="|url\()#', rf"\g<1>#{prefix}-", rest)
    return f'<svg {box.group()} role="img" aria-label="{escaped(description)}">{rest.strip()}'


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
