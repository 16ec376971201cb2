"""Checkpoints as single safetensors files: tensors as they are, everything else as JSON in the header."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from onefold.engine.distributed.launch import rank_here
from onefold.engine.keeping.pack import pack, unpack
from onefold.engine.progress import LOG
from onefold.run import write_aside

KEY = "onefold"


def written_later(path: Path, state: dict[str, Any]) -> Callable[[], None]:
    """Copies the current state, and returns a function that writes it to a temporary file, syncs it to disk and renames
    it.

    The previous checkpoint is kept until then. If the disk is full or gone, that function raises OSError with a clear
    message, and the previous checkpoint is still there.
    """
    tensors, rest = pack(state)
    return partial(write, path, tensors, rest)


def write(path: Path, tensors: dict[str, Tensor], rest: Any) -> None:
    content = safetensors.torch.save(tensors, {KEY: json.dumps(rest)})
    try:
        write_aside(path, content)
    except OSError as error:
        last = path.with_name("last.safetensors")
        kept = f"the previous one is still in {last}" if last.exists() else "there is no previous one"
        raise OSError(
            error.errno,
            f"the checkpoint could not be written ({error.strerror}), {kept}; free up space and run the command again",
        ) from error


def load(path: Path) -> dict[str, Any]:
    """The state that was given to `written_later`; nothing is unpickled."""
    if not path.exists():
        raise ValueError(f"{path}: expected a checkpoint, got no such file; remove {path.parent} to start over")
    try:
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- not a dict
        state: dict[str, Any] = unpack(tensors, json.loads(metadata[KEY]))
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise ValueError(
            f"{path}: expected a checkpoint, got a damaged or foreign file ({error}); "
            f"remove {path.parent} to start over"
        ) from None
    return state


def save_network(path: Path, network: nn.Module) -> None:
    """Writes the network's state dict under its own keys, for `safetensors.torch.load_file`."""
    tensors, _ = pack(dict(network.state_dict()))
    write_aside(path, safetensors.torch.save({name.removeprefix("/"): t for name, t in tensors.items()}))


def load_network(path: Path, network: nn.Module, doubt: str = "") -> None:
    """Loads a file's weights into a network of the same architecture; `doubt` is why it may not be the same."""
    if not path.exists():
        raise ValueError(f"{path}: expected the weights of a finished run, got no such file")
    try:
        weights: dict[str, Tensor] = safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path}: expected safetensors, got a damaged or foreign file ({error})") from None
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).split("\n")[1].strip() if "\n" in str(error) else str(error)
        reason = reason.rstrip(".") + (f"; {doubt}, and its weights no longer fit: undo the change" if doubt else "")
        raise ValueError(f"{path}: expected the weights of a {type(network).__name__}; {reason}") from None
    if doubt:
        warn_once(f"{doubt}; the weights still fit, but the network may now behave differently")


@functools.cache
def warn_once(text: str) -> None:
    """Logs a warning once, however many runs or processes have the same one."""
    if rank_here() == 0:
        LOG.warning(text)


def weights_hash(module: nn.Module) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, value in module.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
