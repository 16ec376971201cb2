"""What is shown about a training run in progress."""

from __future__ import annotations


def told(loss: float, lr: float, rate: float) -> tuple[str, ...]:
    """Parts of the text, the most important first: if there is little room, the last ones are left out."""
    return f"{rate:,.0f} examples/s", f"loss {loss:#.4g}", f"lr {lr:.4f}"
