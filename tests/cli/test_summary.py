from __future__ import annotations

import dataclasses

from onefold.cli.summary import described, summary
from onefold.data import CropFlip, ResizedCrop, load
from onefold.recipes import digits


def test_what_happens_to_images_is_said() -> None:
    recipe, source = digits(), load("digits")
    told = summary(recipe, source, student=False)
    assert "augment    crops moved by up to 1 pixel; --data.no-augment for none of it\n" in told
    plain = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, augment=False))
    assert "augment" not in summary(plain, source, student=False)
    assert described(CropFlip(4, True)) == "crops moved by up to 4 pixels and random mirroring"
    assert described(CropFlip(0, True)) == "random mirroring"
    assert described(CropFlip(0, False)) == described(None) == ""
    assert described(ResizedCrop(224)) == "random parts scaled to 224 x 224 and random mirroring"
