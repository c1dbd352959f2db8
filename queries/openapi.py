"""The API's description in OpenAPI 3.1, such that generators make usable clients of it.

What the framework finds out by itself is completed here by the body of a submission as named schemas. Titles, which
generators would make names of, are dropped.
"""

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema

from queries import batch_request
from queries.error_codes import ERROR_CODES

_REF = "#/components/schemas/"

_CODES = "\n".join(f"- {status} `{code}`: {when}" for status, code, when in ERROR_CODES)
_INTRODUCTION = f"""
Proves what chains held at given blocks or times (accounts, storage slots, block headers) to contracts on a destination
chain, which may be the same chain or another.

Send the key in the header `api-key`; [the page of your keys](/keys) has it. The query parameter `apiKey` works as well,
but a key in a URL ends up in histories and in the logs of everything between you and this service, so the page of the
API doesn't build such URLs.

Every error is an `Error`, with one of these codes:

{_CODES}
"""

_TAGS = {
    "Batch queries": "To submit batch queries, follow and cancel them.",
    "Facts": "What facts registries hold.",
    "Webhooks": "What is sent to you when a batch query gets on.",
    "Chains": "What can be proven where.",
    "Explorer": "What anybody may read, without a key.",
    "Health": "Whether the service works.",
}

_EXAMPLE = {
    "destinationChainId": "31337",
    "fee": "0",
    "data": {
        "31337": {
            "block:12": {
                "accounts": {"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266": {"props": ["BALANCE"], "slots": []}}
            }
        }
    },
}

BATCH_REQUEST: Mapping[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": f"{_REF}BatchRequest"}, "example": _EXAMPLE}},
    }
}
"""For `openapi_extra` of operations that take a batch query."""


class Api(NinjaAPI):
    """The API, with a description that is complete."""

    def __init__(self, **kwargs: Any) -> None:
        tags = [{"name": name, "description": description} for name, description in _TAGS.items()]
        super().__init__(description=_INTRODUCTION, openapi_extra={"tags": tags}, **kwargs)

    def get_openapi_schema(self, **_: Any) -> OpenAPISchema:
        """Return the document, which nobody may change."""
        return self._document

    @cached_property
    def _document(self) -> OpenAPISchema:
        # It is made once: that takes as long as a hundred requests.
        document = super().get_openapi_schema()
        request = batch_request.BatchRequest.model_json_schema(ref_template=_REF + "{model}")
        schemas = document["components"]["schemas"] | request.pop("$defs") | {"BatchRequest": request}
        used = _used(document["paths"], schemas)
        document["components"]["schemas"] = {name: _tidied(schemas[name]) for name in sorted(used)}
        for path in document["paths"].values():
            # It goes without saying.
            path.pop("head", None)
            for operation in path.values():
                for parameter in operation["parameters"]:
                    _complete(parameter["schema"])
        return document


def _complete(schema: dict[str, Any]) -> None:
    """Tidy the schema of a query parameter, which can't be null."""
    schema.pop("title", None)
    schema.pop("description", None)
    if choices := [choice for choice in schema.pop("anyOf", ()) if choice != {"type": "null"}]:
        schema |= choices[0]


def _tidied(node: Any, keyword: str = "") -> Any:
    """Return a schema with one pattern for all keys of an object, so that no other key is allowed, and without titles.

    It has no defaults either: generators of types would take what a request may leave out as what it must have.
    """
    if isinstance(node, list):
        return [_tidied(each) for each in node]
    if not isinstance(node, dict):
        return node
    schema = {name: _tidied(child, name) for name, child in node.items()}
    if keyword != "properties":
        schema.pop("title", None)
        schema.pop("default", None)
    for pattern, values in schema.pop("patternProperties", {}).items():
        schema |= {"propertyNames": {"pattern": pattern}, "additionalProperties": values}
    return schema


def _used(paths: Any, schemas: Mapping[str, Any]) -> set[str]:
    """Return the names of the schemas that the paths refer to, directly or not."""
    used: set[str] = set()
    text = json.dumps(paths)
    while found := set(re.findall(rf'"{_REF}(\w+)"', text)) - used:
        used |= found
        text = json.dumps([schemas[name] for name in found])
    return used
