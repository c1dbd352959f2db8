"""What an attack has tried and seen, and whether the service kept its promise."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """One row of the table."""

    tried: str
    promise: str
    seen: str
    kept: bool

    def __str__(self) -> str:
        said = "kept" if self.kept else "BROKEN"
        return f"{said:<6}  {self.tried}\n        promise: {self.promise}\n        seen: {self.seen}"
