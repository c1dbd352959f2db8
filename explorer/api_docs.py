"""The API's page, from its OpenAPI document. Requests can be tried on it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from queries.api import api
from queries.api_endpoint import ERROR_CODES, TAGS

TypeWord = tuple[str, bool]  # a word of a type, and whether it is the name of a schema


@dataclass(frozen=True)
class SchemaField:
    """A field of a schema, or a parameter of an operation."""

    name: str
    place: str  # path, query or header; empty in a schema
    is_required: bool
    type: Sequence[TypeWord]
    pattern: str
    description: str


@dataclass(frozen=True)
class ApiOperation:
    id: str
    method: str
    path: str
    description: str
    takes_key: bool
    parameters: Sequence[SchemaField]
    body: Mapping[str, Any] | None  # an example
    body_type: Sequence[TypeWord]
    answer_type: Sequence[TypeWord]
    errors: Sequence[str]  # HTTP statuses

    @property
    def body_as_json(self) -> str:
        return json.dumps(self.body)

    @property
    def indented_body(self) -> str:
        return json.dumps(self.body, indent=2)

    @property
    def query(self) -> str:
        """Return the query string that it needs at least, with placeholders."""
        names = [field.name for field in self.parameters if field.place == "query" and field.is_required]
        return "?" + "&".join(f"{name}=<{name}>" for name in names) if names else ""


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show every endpoint and schema of the API, then the codes of errors."""
    return render(request, "explorer/api_docs/page.html", {"content": _content(settings.BASE_URL)})


@cache
def _content(base_url: str) -> SafeString:
    """Render what all readers see. It stays the same while this process runs."""
    context = {"groups": _groups(), "schemas": _schemas(), "error_codes": ERROR_CODES, "base_url": base_url}
    return render_to_string("explorer/api_docs/_content.html", context)


def _groups() -> Sequence[tuple[str, str, Sequence[ApiOperation]]]:
    """Return the operations by tag, each with the tag's name and description."""
    operations = [
        (operation["tags"][0], _operation(method, path, operation))
        for path, methods in api.get_openapi_schema()["paths"].items()
        for method, operation in methods.items()
    ]
    return [(tag, about, [each for of, each in operations if of == tag]) for tag, about in TAGS.items()]


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> ApiOperation:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    answers = operation["responses"]
    success = next(answers[status] for status in answers if status < 300)
    answer = success.get("content", {}).get("application/json", {})
    return ApiOperation(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        description=operation["description"],
        takes_key="security" in operation,
        parameters=[
            _field(each["name"], {**each["schema"], **each}, is_required=each["required"], place=each["in"])
            for each in operation["parameters"]
        ],
        body=body.get("example"),
        body_type=list(_type(body.get("schema", {}))),
        answer_type=list(_type(answer.get("schema", {}))),
        errors=[str(status) for status in answers if status >= 400],
    )


def _schemas() -> Sequence[tuple[str, Mapping[str, Any], Sequence[SchemaField]]]:
    """Return the schemas with their names and fields. An enumeration has no fields."""
    schemas = api.get_openapi_schema()["components"]["schemas"]
    return [(name, schema, list(_fields(schema))) for name, schema in schemas.items()]


def _fields(schema: Mapping[str, Any]) -> Iterator[SchemaField]:
    for name, content in schema.get("properties", {}).items():
        yield _field(name, content, is_required=name in schema.get("required", ()))


def _field(name: str, schema: Mapping[str, Any], *, is_required: bool, place: str = "") -> SchemaField:
    words, pattern, description = list(_type(schema)), schema.get("pattern", ""), schema.get("description", "")
    return SchemaField(name, place, is_required, words, pattern, description)


def _type(schema: Mapping[str, Any]) -> Iterator[TypeWord]:
    """Yield the words of a type: `list of` or `object of` before the type of what is inside, `or` between choices."""
    if "$ref" in schema:
        yield schema["$ref"].rpartition("/")[2], True
    elif choices := schema.get("anyOf"):
        for at, choice in enumerate(choices):
            if at:
                yield "or", False
            yield from _type(choice)
    elif "enum" in schema or "const" in schema:
        yield " | ".join(map(json.dumps, schema.get("enum", [schema.get("const")]))), False
    elif schema.get("type") == "array":
        yield "list of", False
        yield from _type(schema["items"])
    elif isinstance(values := schema.get("additionalProperties"), Mapping):
        yield "object of", False
        yield from _type(values)
    else:
        yield schema.get("type", "any value"), False
