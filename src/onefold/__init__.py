"""onefold turns a deep ensemble into one network."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Teachers", "batch_ensemble", "calibrated", "collapse", "distill", "evaluate", "subnetwork"]

if TYPE_CHECKING:
    from onefold.api import calibrated, distill, evaluate
    from onefold.ensemble import Teachers, batch_ensemble, collapse, subnetwork
else:
    HOMES = {"distill": "api", "evaluate": "api", "calibrated": "api"}

    def __getattr__(name: str) -> object:
        """The public names and the modules, imported when they are first asked for: torch alone takes seconds."""
        import importlib
        import importlib.util

        if name in __all__:
            found = getattr(importlib.import_module(f"onefold.{HOMES.get(name, 'ensemble')}"), name)
        elif not name.startswith("_") and importlib.util.find_spec(f"onefold.{name}") is not None:
            found = importlib.import_module(f"onefold.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
