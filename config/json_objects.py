"""Dataclasses that become JSON in the API's spelling."""

from datetime import datetime
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel


class JsonObject:
    """The base of a dataclass that becomes JSON, with names in camel case."""

    __pydantic_config__: ClassVar = ConfigDict(
        alias_generator=to_camel, serialize_by_alias=True, json_schema_serialization_defaults_required=True
    )


Time = Annotated[datetime, PlainSerializer(datetime.isoformat, return_type=str)]
"""ISO 8601."""

PAGE_ONLY = Field(exclude=True)
"""A field for pages, left out of JSON."""


def iso(at: datetime | None) -> str | None:
    """Return the time in ISO 8601."""
    return at.isoformat() if at else None
