"""The model card of a hub folder: what the network is, how good it is, how to load it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from onefold.engine.networks.named import recorded
from onefold.engine.networks.own_arguments import own_arguments
from onefold.engine.networks.own_network import in_file, is_own
from onefold.export.deployed import Deployed
from onefold.export.inputs import in_code, in_words
from onefold.models import ChannelStatistics

HUB_DATA = {"cifar10": "uoft-cs/cifar10", "cifar100": "uoft-cs/cifar100", "tiny-imagenet": "zh-plus/tiny-imagenet"}
HUB_DATA |= {"imagenet": "ILSVRC/imagenet-1k", "svhn": "ufldl-stanford/svhn"}
METRICS = {"acc": "accuracy", "nll": "NLL", "ece": "ECE (15 bins)", "brier": "Brier score"}
METRICS |= {"cnll": "NLL after temperature scaling", "cece": "ECE after temperature scaling"}
TAUGHT = {"kd": "KD", "aekd": "AE-KD", "proxy-end2": "Proxy-EnD2", "be": "BatchEnsemble", "latentbe": "LatentBE"}


def card(found: Deployed, facts: dict[str, Any], to_do: str, program: bool, code: list[str]) -> str:
    import jinja2  # imported only where it is used

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("onefold.export", "."),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("card.md.j2").render(
        facts=facts,
        name=title(facts),
        story=story(facts),
        images=len(facts["input"]["shape"]) == 3,
        dataset=HUB_DATA.get(str(facts["data"])),
        metrics=[(METRICS[name], facts["metrics"][name]) for name in METRICS if name in facts["metrics"]],
        prepared=in_words(facts["input"]),
        preparing=in_code(facts["input"]),
        program=program,
        loading=loading(found) if facts["networks"] == 1 else [],
        to_do=to_do,
        code=code,
    )


def title(facts: dict[str, Any]) -> str:
    return f"{facts['network']} on {facts['data']}"


def story(facts: dict[str, Any]) -> str:
    """A sentence that says what the network is."""
    if facts["kind"] == "ensemble":
        return f"A deep ensemble of {facts['networks']} {facts['network']} networks."
    if facts["method"] == "supervised":
        return f"A {facts['network']} network, trained on labels."
    perturbed = "" if facts["perturbation"] == "none" else f" with {facts['perturbation']} perturbation"
    what = f"{TAUGHT.get(facts['method'], facts['method'])}{perturbed}"
    members = f", with {facts['networks']} members" if facts["networks"] > 1 else ": one ordinary network"
    return f"An ensemble of {facts['teachers']} networks, distilled into one by {what}{members}."


def loading(found: Deployed) -> list[str]:
    """Lines of Python that create the network for these weights."""
    about = found.about
    if "image_size" not in about:  # trained from Python
        return [f"net = {found.facts['network']}(...)  # with the same arguments as in training"]
    given = (about["classes"], about["statistics"], about["image_size"])
    if not is_own(about["network"]):
        arguments = ", ".join(map(repr, (about["network"], *given)))
        return ["from onefold.engine import build_network", "", f"net = build_network({arguments})"]
    own = recorded(about)
    place, _, name = about["network"].rpartition(":")
    filled = own_arguments(own, *given)
    known = any(isinstance(value, ChannelStatistics) for value in filled.values())
    lines = ["from onefold.models import ChannelStatistics"] if known else []
    words = [f"{key}={value!r}" for key, value in filled.items()]
    if isinstance(own.make, functools.partial):  # timm makes networks by their names
        name, words = own.make.func.__name__, [*map(repr, own.make.args), *words]
    stem = Path(place).stem if in_file(place) else place
    if all(part.isidentifier() for part in stem.split(".")):
        lines.append(f"from {stem} import {name}")
    else:
        lines += ["import runpy", "", f"{name} = runpy.run_path({Path(place).name!r})[{name!r}]"]
    return [*lines, "", f"net = {name}({', '.join(words)})"]
