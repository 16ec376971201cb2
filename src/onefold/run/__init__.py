"""The run folder: everything a run leaves behind, and the only thing that reports and comparisons read."""

from onefold.run.compare import ADDED, differences, leaves, made_by, same_example, teachers_hash
from onefold.run.folder import RunFolder, check_places
from onefold.run.places import check_file, check_folder, check_room, unwritable
from onefold.run.writing import write_aside

__all__ = [
    "ADDED",
    "RunFolder",
    "check_file",
    "check_folder",
    "check_places",
    "check_room",
    "differences",
    "leaves",
    "made_by",
    "same_example",
    "teachers_hash",
    "unwritable",
    "write_aside",
]
