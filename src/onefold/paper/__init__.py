"""The numbers in the paper's tables, which ship with the package."""

from onefold.paper.tables import TABLES, Entry, entries, found

__all__ = ["TABLES", "Entry", "entries", "found"]
