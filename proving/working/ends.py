"""The ends of a turn for a batch or a block. They decide when it is due again."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from queries.waits import WaitReason


@dataclass(frozen=True)
class Waits:
    """Try again after some seconds, because nothing more can be done now. The reason is None if all is well."""

    reason: WaitReason | None
    seconds: float
    for_path: bool = False  # True if a block waits for a path, for itself or for another


@dataclass(frozen=True)
class Fails:
    """Count the attempt as failed. Repeat it with growing pauses."""

    reason: WaitReason
    queries: Collection[int] | None = None  # ids of the affected queries; None means all
    for_path: bool = False  # True if no path to the block can be made now
    code: str = ""  # the code by which the batch is rejected once enough checks in a row would reject it


@dataclass(frozen=True)
class Done:
    """Nothing more is to be done, so it isn't due again."""


End = Waits | Fails | Done

OUTCOMES: Mapping[type[End], str] = {Waits: "waits", Fails: "fails", Done: "done"}
"""The names of ends in the metrics of job runs."""
