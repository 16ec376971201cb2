"""Progress and messages besides the results: bars on a terminal, plain lines elsewhere."""

from onefold.terminal.bars import Bars
from onefold.terminal.lines import Lines
from onefold.terminal.show import Display, Stage, attended, display
from onefold.terminal.speak import Speaker, hush, hushed, propose, say, say_first
from onefold.terminal.wrap import fitted, wrapped

__all__ = [
    "Bars",
    "Display",
    "Lines",
    "Speaker",
    "Stage",
    "attended",
    "display",
    "fitted",
    "hush",
    "hushed",
    "propose",
    "say",
    "say_first",
    "wrapped",
]
