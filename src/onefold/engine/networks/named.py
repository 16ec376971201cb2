"""Networks by the name a recipe gives them: the reference networks, and those of the user's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from onefold.engine.networks.own_network import Own, blaming, is_own, own_network, recorded_network
from onefold.models import ChannelStatistics, Standardize, mlp, wide_resnet
from onefold.names import unknown

NAMES = ("wrn28x1", "wrn28x4", "resnet18-small", "resnet50", "mlp")
WIDE = r"wrn(\d+)x(\d+)"
MADE: WeakSet[nn.Module] = WeakSet()  # of the user's own


def build_network(
    name: str,
    classes: int,
    statistics: tuple[Sequence[float], Sequence[float]],
    image_size: Sequence[int] | None = None,
) -> nn.Module:
    """A fresh network: wrnDxK (depth D, width K), resnet18-small, resnet50 or mlp; or FILE.py:NAME, the user's own.

    `statistics` are mean and deviation of each channel, or of each feature. An mlp takes images too, if their
    `image_size` (H, W) is given.
    """
    if is_own(name):
        return own_made(own_network(name), classes, statistics, image_size)
    mean, std = statistics
    channels = ChannelStatistics(tuple(mean), tuple(std))
    wide = re.fullmatch(WIDE, name)
    if name != "mlp" and (wide or name in NAMES) and image_size is not None and len(image_size) != 2:
        raise ValueError(
            f"network: '{name}' is for images, and the examples are of shape {list(image_size)}; use 'mlp'"
        )
    if wide is not None:
        return wide_resnet(int(wide[1]), int(wide[2]), classes, channels, channels.channels)
    if name in ("resnet18-small", "resnet50"):
        if channels.channels != 3:
            raise ValueError(
                f"network: '{name}' is for images with 3 channels, and these have {channels.channels}; use 'wrn28x1'"
            )
        from onefold.models import resnet18_small, resnet50  # torchvision's, which is slow to import

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
    """A fresh network of the architecture that a run folder has recorded, and inputs of the shape it takes."""
    missing = [name for name in ("network", "classes", "statistics", "image_size") if name not in about]
    if "image_size" in missing:
        raise ValueError(
            "its run was trained from Python and has the weights alone; what asks the network is for Python, too: "
            "onefold.evaluate(onefold.load(RUN, net=Net()), test)"
        )
    if missing:
        raise ValueError(f"run.json: expected {', '.join(missing)} in it, to build the network")
    name, build = about["network"], (about["classes"], about["statistics"], about["image_size"])
    with torch.random.fork_rng(devices=[]):  # weights are loaded into it
        net = own_made(recorded(about), *build) if is_own(name) else build_network(name, *build)
    return net, example_of(*build[1:])


def example_of(statistics: Sequence[Sequence[float]], size: Sequence[int]) -> Tensor:
    """Inputs in grey: images `[2, C, H, W]`, or features."""
    return torch.full((2, len(statistics[0]), *size) if len(size) == 2 else (2, *size), 0.5)


def standardized(net: nn.Module) -> list[list[list[float]]]:
    """Mean and deviation of each layer of a network that standardises, which are not in its state dict."""
    found = [module.statistics for module in net.modules() if isinstance(module, Standardize)]
    return [[[*map(float, each.mean)], [*map(float, each.std)]] for each in found]


def recorded(about: dict[str, Any]) -> Own:
    return recorded_network(about["network"], about.get("network_file"))


def check_network(name: str) -> None:
    """Refuses a network that cannot be found, before data are read."""
    if is_own(name):
        own_network(name)
    elif name not in NAMES and not re.fullmatch(WIDE, name):
        raise ValueError(not_there(name))


def check_recorded(about: dict[str, Any]) -> None:
    """Refuses the same of a run folder."""
    if is_own(about.get("network", "")):
        recorded(about)


def identity(name: str) -> dict[str, str]:
    """What a run folder says about a network of the user's own, so that it is found again and known to be the same."""
    if not is_own(name):
        return {}
    own = own_network(name)
    return {"network_file": str(own.file), "network_content": own.content}


def found_at(about: dict[str, Any], name: str) -> dict[str, Any]:
    """What a run folder says, with its network in the file of another name, if what is written there is the same: the
    run's own file may have moved."""
    given = identity(name)
    if not given or given["network_content"] != about.get("network_content"):
        return about
    place, attribute = name.rpartition(":")[0], about["network"].rpartition(":")[2]
    return about | given | {"network": f"{place}:{attribute}"}


def doubt(about: dict[str, Any]) -> str:
    """A sentence where the file of a run's network is not what it was."""
    if "network_content" not in about or about["network_content"] == recorded(about).content:
        return ""
    return f"{recorded(about).file}, or a file that it imports, has changed since the run was begun"


def own_made(
    own: Own, classes: int, statistics: Sequence[Sequence[float]], image_size: Sequence[int] | None
) -> nn.Module:
    """A network of the user's own, given what its parameters name, which has answered an example."""
    given = own_arguments(own, classes, statistics)
    with blaming(f"'{own.name}' cannot be made", own.folder):
        net = own.make(**given)
    if not isinstance(net, nn.Module):
        raise ValueError(f"network: expected '{own.name}' to make a torch.nn.Module, got {type(net).__name__}")
    if net in MADE:
        raise ValueError(f"network: expected '{own.name}' to make a new network each time, got the same one twice")
    MADE.add(net)
    if image_size is not None:
        check_answers(own, net, example_of(statistics, image_size), classes)
    return net


def begin_alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether all matrices that were drawn, for their entries differ, are the same in two networks. Vectors are not
    asked: most biases are drawn by torch, also where a network draws the rest by itself."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    drawn = [(w, v) for w, v in pairs if w.dim() > 1 and bool((w != w.flatten()[:1]).any())]
    return bool(drawn) and all(torch.equal(ours, theirs) for ours, theirs in drawn)


def own_arguments(own: Own, classes: int, statistics: Sequence[Sequence[float]]) -> dict[str, Any]:
    mean, std = statistics
    counts = {"classes": classes, "num_classes": classes, "channels": len(mean), "in_channels": len(mean)}
    every = counts | {"statistics": ChannelStatistics(tuple(mean), tuple(std))}
    return {name: every[name] for name in own.wanted}


def check_answers(own: Own, net: nn.Module, x: Tensor, classes: int) -> None:
    """Asks once, at rest: `[B, ...]` to logits `[B, K]`, or it is refused. Lazy layers get their weights by that."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    with torch.no_grad(), blaming(f"'{own.name}' cannot be asked about inputs {list(x.shape)}", own.folder):
        answers = net(x)
    for module, training in modes:
        module.training = training
    logits = getattr(answers, "logits", answers)
    wanted, tensor = [x.shape[0], classes], isinstance(logits, Tensor)
    if tensor and list(logits.shape) == wanted:
        return
    counted = tensor and logits.dim() == 2
    filled = "give it a parameter 'classes' or 'num_classes', which is filled in"
    remedy = filled if counted else "let it answer logits [B, K] alone"
    raise ValueError(
        f"network: expected '{own.name}' to answer {wanted} for inputs {list(x.shape)}, a logit for each of the "
        f"{classes} classes, got {list(logits.shape) if tensor else f'a {type(logits).__name__}'}; {remedy}"
    )


def shown(name: str, classes: int, statistics: Sequence[Sequence[float]]) -> str:
    """The name; of a network of the user's own with what it is given, which may not be what it had in mind."""
    if not is_own(name):
        return name
    given = own_arguments(own_network(name), classes, statistics)
    words = [f"{key}={'...' if key == 'statistics' else value}" for key, value in given.items()]
    return f"{name}({', '.join(words)})"
