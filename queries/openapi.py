"""The API's description in OpenAPI 3.1, such that generators make usable clients of it.

What the framework finds out by itself is completed here: the body of a submission as named schemas, and what each error
means. Titles, which generators would make names of, are dropped.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema

from queries import batch_request
from queries.error_codes import ERROR_CODES, FILE_ERROR_CODES, OTHER_ERROR_CODES, described

_REF = "#/components/schemas/"

INTRODUCTION = """
Proves what chains held at given blocks or times (accounts, storage slots, block headers) to contracts on a destination
chain, which may be the same chain or another.

Send the key in the header `api-key`. The query parameter `apiKey` works as well, but a key in a URL ends up in
histories and in the logs of everything between you and this service, so this page doesn't build such URLs.
"""

ANY_REQUEST = f"""
Every error is an `Error`. Besides what is listed with each operation, any request may meet these codes:

{described(OTHER_ERROR_CODES)}
"""

_TAGS = {
    "Batch queries": "To submit batch queries, follow and cancel them.",
    "Facts": "What facts registries hold.",
    "Webhooks": "What is sent to you when a batch query gets on.",
    "Chains": "What can be proven where.",
    "Explorer": "What anybody may read, without a key.",
    "Health": "Whether the service works.",
}

# Whose codes are others.
_CODES = {"Explorer": FILE_ERROR_CODES, "Health": ()}

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
        super().__init__(description=INTRODUCTION + ANY_REQUEST, openapi_extra={"tags": tags}, **kwargs)
        self._document: OpenAPISchema | None = None

    def get_openapi_schema(self, **kwargs: Any) -> OpenAPISchema:
        """Return the document, made once: that takes as long as a hundred requests. Nobody may change it."""
        if self._document is None:
            self._document = self._made(**kwargs)
        return self._document

    def _made(self, **kwargs: Any) -> OpenAPISchema:
        document = super().get_openapi_schema(**kwargs)
        schemas = document["components"]["schemas"]
        request = batch_request.BatchRequest.model_json_schema(ref_template=_REF + "{model}")
        schemas |= request.pop("$defs") | {"BatchRequest": request}
        for path in document["paths"].values():
            # It goes without saying.
            path.pop("head", None)
            for operation in path.values():
                _complete(operation)
        _name_keys(list(schemas.values()))
        _drop("title", schemas.values())
        # Else generators of types take what a request may leave out as what it must have.
        _drop("default", schemas.values())
        used = _used(document["paths"], schemas)
        document["components"]["schemas"] = {name: schemas[name] for name in sorted(used)}
        return document


def _complete(operation: dict[str, Any]) -> None:
    for parameter in operation["parameters"]:
        # A query parameter can't be null.
        schema = parameter["schema"]
        schema.pop("title", None)
        schema.pop("description", None)
        if choices := [choice for choice in schema.pop("anyOf", ()) if choice != {"type": "null"}]:
            schema |= choices[0]
    operation["responses"] = {
        status: response | {"description": _with_codes(response["description"], status, operation)}
        for status, response in operation["responses"].items()
    }


def _with_codes(description: str, status: int, operation: Mapping[str, Any]) -> str:
    (tag,) = operation["tags"]
    has_body, has_proofs = "requestBody" in operation, 410 in operation["responses"]
    codes = [
        each
        for each in _CODES.get(tag, ERROR_CODES)
        if each.status == status and (has_body or not each.needs_body) and (has_proofs or not each.of_proofs)
    ]
    return f"{description}:\n\n{described(codes)}" if codes else description


def _drop(keyword: str, node: Any) -> None:
    """Drop the keyword of all schemas in `node`, though not a property of that name."""
    for name, child in node.items() if isinstance(node, dict) else ((None, child) for child in _children(node)):
        if isinstance(child, dict) and name != "properties":
            child.pop(keyword, None)
        _drop(keyword, child)


def _name_keys(node: Any) -> None:
    """Describe all keys of an object by one pattern, so that no other key is allowed."""
    if isinstance(node, dict) and "patternProperties" in node:
        ((node["propertyNames"], node["additionalProperties"]),) = [
            ({"pattern": pattern}, values) for pattern, values in node.pop("patternProperties").items()
        ]
    for child in _children(node):
        _name_keys(child)


def _children(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        yield from node.values()
    elif not isinstance(node, str) and hasattr(node, "__iter__"):
        yield from node


def _used(node: Any, schemas: Mapping[str, Any]) -> set[str]:
    """Return the names of the schemas that `node` refers to, directly or not."""
    found: set[str] = set()
    left = [node]
    while left:
        each = left.pop()
        if isinstance(each, dict) and isinstance(name := each.get("$ref"), str):
            name = name.removeprefix(_REF)
            if name not in found:
                found.add(name)
                left.append(schemas[name])
        left += _children(each)
    return found
