from __future__ import annotations

import dataclasses

from onefold.cli.summary import described, summary
from onefold.data import CropFlip, ResizedCrop, load
from onefold.recipes import digits

MIRRORED = "random mirroring; --data.no-augment turns it off"


def test_what_happens_to_images_is_said() -> None:
    recipe, source = digits(), load("digits")
    told = summary(recipe, source, student=False)
    assert "augment    crops shifted by up to 1 pixel\n" in told  # and no flag, which the demo does not have
    plain = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, augment=False))
    assert "augment" not in summary(plain, source, student=False)
    assert described(CropFlip(4, True)) == f"crops shifted by up to 4 pixels and {MIRRORED}"
    assert described(CropFlip(0, True)) == MIRRORED
    assert described(CropFlip(0, False)) == described(None) == ""
    assert described(ResizedCrop(224)) == f"random crops resized to 224 x 224 and {MIRRORED}"
