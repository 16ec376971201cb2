"""What is told of a training while it goes on."""

from __future__ import annotations


def told(loss: float, lr: float, rate: float) -> tuple[str, ...]:
    """In parts, the most telling first: where there is little room the last ones are left out."""
    return f"{rate:,.0f} examples/s", f"loss {loss:#.4g}", f"lr {lr:.4f}"
