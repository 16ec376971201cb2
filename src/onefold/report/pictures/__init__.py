"""The pictures of a section. Importing this package imports matplotlib, so do that only when there is something to
draw."""

from __future__ import annotations

from onefold.report.pictures.corruption import corruption_picture
from onefold.report.pictures.cost import cost_picture
from onefold.report.pictures.curves import (
    diversity_picture,
    learning_picture,
    perturbation_picture,
    unfinished_pictures,
)
from onefold.report.pictures.entropy import entropy_pictures
from onefold.report.pictures.picture import Picture
from onefold.report.pictures.reliability import reliability_picture
from onefold.report.pictures.style import styles_of
from onefold.report.pictures.subspace import plane_pictures, subspace_pictures
from onefold.report.table import Section

__all__ = ["Picture", "pictures", "unfinished_pictures"]


def pictures(section: Section) -> list[Picture]:
    """All pictures for which there are numbers, the most informative first. A row looks the same in all of them."""
    styles = styles_of((row.label, row.first) for row in section.rows)
    made = [
        cost_picture(section, styles),
        corruption_picture(section, styles),
        learning_picture(section, styles),
        reliability_picture(section),
        *entropy_pictures(section, styles),
        *subspace_pictures(section, styles),
        *plane_pictures(section),
        diversity_picture(section, styles),
        perturbation_picture(section, styles),
    ]
    return [picture for picture in made if picture is not None]
