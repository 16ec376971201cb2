"""Perturbations: move training inputs to where the teachers' diversity shows."""

from onefold.perturb.draws import DRAWS, Draws
from onefold.perturb.gaussian import gaussian
from onefold.perturb.none import none
from onefold.perturb.ods import confods, ods
from onefold.perturb.space import PIXELS, InputSpace
from onefold.perturb.tdiv import tdiv, tdiv_sdiv

__all__ = ["DRAWS", "PIXELS", "Draws", "InputSpace", "confods", "gaussian", "none", "ods", "tdiv", "tdiv_sdiv"]
