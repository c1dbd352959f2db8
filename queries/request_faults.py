"""Faults of a request as validators raise them: with the stable code as their type, and their sentence."""

from pydantic_core import PydanticCustomError

UNSUPPORTED = "unsupported"
INVALID = "invalid_request"


def invalid(message: str) -> PydanticCustomError:
    # A custom error formats its message as a template, and the echoed text may hold braces.
    return PydanticCustomError(INVALID, "{message}", {"message": message})


def unsupported(message: str) -> PydanticCustomError:
    return PydanticCustomError(UNSUPPORTED, "{message}", {"message": message})
