"""The run folder: everything a run leaves behind, and the only thing that reports and comparisons read."""

from onefold.run.compare import ADDED, differences, leaves, made_by, same_example, teachers_hash
from onefold.run.folder import RunFolder, check_places
from onefold.run.kinds import COMMENT, FACTS, GENERATOR
from onefold.run.places import (
    check_file,
    check_folder,
    check_own_folder,
    check_room,
    holds_runs,
    in_export,
    unwritable,
)
from onefold.run.writing import write_aside

__all__ = [
    "ADDED",
    "COMMENT",
    "FACTS",
    "GENERATOR",
    "RunFolder",
    "check_file",
    "check_folder",
    "check_own_folder",
    "check_places",
    "check_room",
    "differences",
    "holds_runs",
    "in_export",
    "leaves",
    "made_by",
    "same_example",
    "teachers_hash",
    "unwritable",
    "write_aside",
]
