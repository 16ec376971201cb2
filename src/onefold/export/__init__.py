"""Exports the network of a finished run for serving; each file is read back and compared before it is saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from onefold.engine.served import Own
from onefold.export.deployed import Deployed, deployed
from onefold.export.hub import check_hub, write_hub
from onefold.export.inputs import in_words
from onefold.export.onnx_file import check_onnx, onnx_bytes
from onefold.export.program import program_bytes, traced
from onefold.export.weights import weights_bytes
from onefold.methods import Method
from onefold.metrics import warning_of_temperature
from onefold.run import check_file, write_aside

__all__ = ["FORMATS", "Exported", "export"]

PLACES = {
    "safetensors": "model.safetensors",
    "onnx": "model.onnx",
    "torch-export": "model.pt2",
    "hub": "hub",
}
FORMATS = tuple(PLACES)


@dataclass(frozen=True)
class Exported:
    """The path that was written, and notes for the user."""

    path: Path
    notes: list[str]


def export(
    run: Path | str,
    format: str,
    out: Path | str | None = None,
    *,
    calibrated: bool = True,
    batch: int | None = None,
    network: str = "",
    net: nn.Module | None = None,
    example: Tensor | None = None,
    method: Method | None = None,
) -> Exported:
    """Exports the network of a finished run, or the ensemble of a folder of teachers, and checks that the exported file
    gives the same outputs.

    Args:
        format: safetensors (weights under the network's own keys), onnx, torch-export (a program that does not need the
            network's source), or hub (a folder with a model card).
        out: the file to write, or with hub the folder; by default in RUN/export, under another name if not calibrated.
        calibrated: make the run's temperature, if it has one, a part of the network.
        batch: fixed batch size that the exported program takes; by default any. Not with safetensors.
        network: FILE.py:NAME, if the file of your own network has moved since training.
        net, example: for a run that was trained from Python, whose folder has only the weights: a network of the same
            architecture, and inputs `[B, ...]`.
        method: for a run of a method of your own: that method, which says how the network predicts.
    """
    if format not in PLACES:
        raise ValueError(f"format: expected {', '.join(FORMATS)}, got {format!r}")
    if batch is not None and batch < 1:
        raise ValueError(f"batch: expected at least 1, got {batch}")
    if batch is not None and format == "safetensors":
        raise ValueError(f"batch: expected none with safetensors, which holds weights and no program, got {batch}")
    path = default_place(Path(run).expanduser(), format, calibrated) if out is None else Path(out).expanduser()
    if format == "onnx":
        check_onnx()
    check_place(path, format)
    if (net is None) != (example is None):
        raise ValueError("net, example: expected both, a network and inputs that it takes, or neither")
    found = deployed(run, calibrated, network, Own(net, example, method))
    notes = [about_temperature(found, format)]
    warning = warning_of_temperature(found.facts["temperature"], found.facts["metrics"])
    if warning is not None and found.facts["calibrated"]:
        notes.append(warning)
    if found.facts["input"]["preprocessing"] is None:
        notes.append(in_words(found.facts["input"]))
    if format == "hub":
        return Exported(path, notes + write_hub(found, path, batch))
    content, told = WRITERS[format](found, batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_aside(path, content)
    return Exported(path, notes + told)


def default_place(run: Path, format: str, calibrated: bool) -> Path:
    place = Path(PLACES[format])
    return run / "export" / (place if calibrated else place.with_stem(f"{place.stem}-uncalibrated"))


def check_place(path: Path, format: str) -> None:
    if format == "hub":
        return check_hub(path)
    if path.is_dir():
        raise ValueError(f"out: {path} is a folder; name a file in it, such as {path / PLACES[format]}")
    return check_file(path, kind=format)


def about_temperature(found: Deployed, format: str) -> str:
    if found.facts["temperature"] is None:
        return "not calibrated: the run has no temperature, because there was no validation split"
    temperature = f"{found.facts['temperature']:.4g}"
    if not found.facts["calibrated"]:
        return f"not calibrated, as asked; the run's temperature is {temperature}"
    if format == "safetensors" and not found.ordinary:
        return f"not calibrated: weights alone cannot hold the temperature {temperature} of the validation split"
    alone = "" if found.ordinary or format != "hub" else ", as a program; the weights alone are not"
    return f"calibrated with the temperature {temperature} of the validation split{alone}"


WRITERS: dict[str, Callable[[Deployed, int | None], tuple[bytes, list[str]]]] = {
    "safetensors": lambda found, _: weights_bytes(found),
    "onnx": lambda found, batch: onnx_bytes(traced(found.answer, found.example, batch), found.facts),
    "torch-export": lambda found, batch: program_bytes(traced(found.answer, found.example, batch), found.facts),
}
