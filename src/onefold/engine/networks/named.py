"""Networks by their name in a recipe: the reference networks and the user's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from onefold.engine.networks.own_arguments import example_of, own_arguments
from onefold.engine.networks.own_network import Own, blaming, is_own, own_network, recorded_network
from onefold.models import ChannelStatistics, Standardize, mlp, wide_resnet
from onefold.names import unknown
from onefold.types import logits_in

NAMES = ("wrn28x1", "wrn28x4", "resnet18-small", "resnet50", "mlp")
WIDE = r"wrn(\d+)x(\d+)"
MADE: WeakSet[nn.Module] = WeakSet()  # users' networks made so far


def build_network(
    name: str,
    classes: int,
    statistics: tuple[Sequence[float], Sequence[float]],
    image_size: Sequence[int] | None = None,
) -> nn.Module:
    """A fresh network: wrnDxK (depth D, width K), resnet18-small, resnet50 or mlp; or FILE.py:NAME for a user's own.

    `statistics` are the mean and standard deviation of each channel or feature. An mlp takes images, too, if their
    `image_size` (H, W) is given.
    """
    if is_own(name):
        return own_made(own_network(name), classes, statistics, image_size)
    mean, std = statistics
    channels = ChannelStatistics(tuple(mean), tuple(std))
    wide = re.fullmatch(WIDE, name)
    if name != "mlp" and (wide or name in NAMES) and image_size is not None and len(image_size) != 2:
        raise ValueError(f"network: '{name}' is for images, but the examples have shape {list(image_size)}; use 'mlp'")
    if wide is not None:
        return wide_resnet(int(wide[1]), int(wide[2]), classes, channels, channels.channels)
    if name in ("resnet18-small", "resnet50"):
        if channels.channels != 3:
            raise ValueError(
                f"network: '{name}' is for images with 3 channels, but these have {channels.channels}; use 'wrn28x1'"
            )
        from onefold.models import resnet18_small, resnet50  # imports torchvision, which is slow

        return (resnet50 if name == "resnet50" else resnet18_small)(classes, channels)
    if name == "mlp" and image_size is not None and len(image_size) == 2:
        flat = mlp(channels.channels * image_size[0] * image_size[1], classes)
        return nn.Sequential(Standardize(channels.mean, channels.std), nn.Flatten(), *flat)
    if name == "mlp":
        return mlp(channels.channels, classes, statistics=channels)
    raise ValueError(not_there(name))


def not_there(name: str) -> str:
    own = "; a network of your own is FILE.py:NAME" if "." in name or "/" in name else ""
    return f"network: {unknown(name, NAMES)}{own}"


def network_of(about: dict[str, Any]) -> tuple[nn.Module, Tensor]:
    """A fresh network of the architecture recorded in a run folder, and inputs of a valid shape."""
    missing = [name for name in ("network", "classes", "statistics", "image_size") if name not in about]
    if "image_size" in missing:
        raise ValueError(
            "the run was trained from Python and has only the weights; run the network from Python, too: "
            "onefold.evaluate(onefold.load(RUN, net=Net()), test)"
        )
    if missing:
        raise ValueError(f"run.json: expected {', '.join(missing)} in it, to build the network")
    name, build = about["network"], (about["classes"], about["statistics"], about["image_size"])
    with torch.random.fork_rng(devices=[]):  # its random weights will be replaced
        net = own_made(recorded(about), *build) if is_own(name) else build_network(name, *build)
    return net, example_of(*build[1:])


def standardized(net: nn.Module) -> list[list[list[float]]]:
    """Mean and standard deviation of each Standardize layer of a network, which are not in its state dict."""
    found = [module.statistics for module in net.modules() if isinstance(module, Standardize)]
    return [[[*map(float, each.mean)], [*map(float, each.std)]] for each in found]


def recorded(about: dict[str, Any]) -> Own:
    return recorded_network(about["network"], about.get("network_file"))


def check_network(name: str) -> None:
    """Refuses a network that cannot be found, before any data are read."""
    if is_own(name):
        own_network(name)
    elif name not in NAMES and not re.fullmatch(WIDE, name):
        raise ValueError(not_there(name))


def check_recorded(about: dict[str, Any]) -> None:
    """Refuses a run folder whose network cannot be found."""
    if is_own(about.get("network", "")):
        recorded(about)


def identity(name: str) -> dict[str, str]:
    """What a run folder records about a user's network, so that it can be found again and verified to be the same."""
    if not is_own(name):
        return {}
    own = own_network(name)
    return {"network_file": str(own.file), "network_content": own.content}


def found_at(about: dict[str, Any], name: str) -> dict[str, Any]:
    """What a run folder records; if the network `name` has the same source, its file replaces the recorded one, which
    may have moved."""
    given = identity(name)
    if not given or given["network_content"] != about.get("network_content"):
        return about
    place, attribute = name.rpartition(":")[0], about["network"].rpartition(":")[2]
    return about | given | {"network": f"{place}:{attribute}"}


def doubt(about: dict[str, Any]) -> str:
    """A note if the file of a run's network has changed since; else empty."""
    if "network_content" not in about or about["network_content"] == recorded(about).content:
        return ""
    return f"{recorded(about).file}, or a file that it imports, has changed since the run was started"


def own_made(
    own: Own, classes: int, statistics: Sequence[Sequence[float]], image_size: Sequence[int] | None
) -> nn.Module:
    """Makes a user's network, passing the arguments its parameters name, and checks its output on an example."""
    given = own_arguments(own, classes, statistics, image_size)
    with blaming(f"'{own.name}' cannot be created", own.folder):
        net = own.make(**given)
    if not isinstance(net, nn.Module):
        raise ValueError(f"network: expected '{own.name}' to return a torch.nn.Module, got {type(net).__name__}")
    if net in MADE:
        raise ValueError(f"network: expected '{own.name}' to return a new network each time, got the same one twice")
    MADE.add(net)
    if image_size is not None:
        check_answers(own, net, example_of(statistics, image_size), classes)
    return net


def begin_alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether two networks have the same values in every randomly initialized matrix (one whose entries are not all
    equal). Vectors are ignored: torch draws most biases, even where a network draws the rest itself."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    drawn = [(w, v) for w, v in pairs if w.dim() > 1 and bool((w != w.flatten()[:1]).any())]
    return bool(drawn) and all(torch.equal(ours, theirs) for ours, theirs in drawn)


def check_answers(own: Own, net: nn.Module, x: Tensor, classes: int) -> None:
    """Runs the network once in evaluation mode and refuses it unless it maps `[B, ...]` to logits `[B, K]`. This also
    initializes lazy layers."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    with torch.no_grad(), blaming(f"'{own.name}' fails on inputs {list(x.shape)}", own.folder):
        logits = logits_in(net(x))
    for module, training in modes:
        module.training = training
    wanted, tensor = [x.shape[0], classes], isinstance(logits, Tensor)
    if tensor and list(logits.shape) == wanted:
        return
    counted = tensor and logits.dim() == 2
    filled = "give it a parameter 'classes' or 'num_classes', which is filled in"
    remedy = filled if counted else "let it return only logits [B, K]"
    raise ValueError(
        f"network: expected '{own.name}' to return {wanted} for inputs {list(x.shape)}, a logit for each of the "
        f"{classes} classes, got {list(logits.shape) if tensor else f'a {type(logits).__name__}'}; {remedy}"
    )


def shown(
    name: str, classes: int, statistics: Sequence[Sequence[float]], image_size: Sequence[int] | None = None
) -> str:
    """The name; for a user's network with the arguments it is given, which may not be what the user expects."""
    if not is_own(name):
        return name
    own = own_network(name)
    given = own_arguments(own, classes, statistics, image_size)
    words = [f"{key}={'...' if key == 'statistics' else value}" for key, value in given.items()]
    return f"{name}({', '.join(words)})"
