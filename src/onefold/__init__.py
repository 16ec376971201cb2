"""onefold turns a deep ensemble into one network."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "InputSpace",
    "Method",
    "Result",
    "Teachers",
    "__version__",
    "batch_ensemble",
    "calibrated",
    "collapse",
    "distill",
    "evaluate",
    "load",
    "subnetwork",
]

if TYPE_CHECKING:
    from onefold.api import calibrated, distill, evaluate
    from onefold.engine import Result
    from onefold.ensemble import Teachers, batch_ensemble, collapse, subnetwork
    from onefold.loading import load
    from onefold.methods import Method
    from onefold.perturb import InputSpace

    __version__: str
else:
    HOMES = {"calibrated": "api", "distill": "api", "evaluate": "api", "load": "loading"}
    HOMES |= {"InputSpace": "perturb", "Method": "methods", "Result": "engine"}

    def __getattr__(name: str) -> object:
        """The public names and the modules, imported on first use: torch alone takes seconds."""
        import importlib.metadata
        import importlib.util

        if name == "__version__":
            try:
                found = importlib.metadata.version("onefold")
            except importlib.metadata.PackageNotFoundError:  # a copy of the source alone
                found = "0+unknown"
        elif name in __all__:
            found = getattr(importlib.import_module(f"onefold.{HOMES.get(name, 'ensemble')}"), name)
        elif not name.startswith("_") and importlib.util.find_spec(f"onefold.{name}") is not None:
            found = importlib.import_module(f"onefold.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
