"""The page `/api/docs`: each operation of the API as its OpenAPI document describes it, rendered here.

What it says of the API is made once in a process. A visitor's keys are named beside it, without the keys themselves.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any, cast

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.cache import add_never_cache_headers
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from ninja import NinjaAPI
from ninja.openapi.docs import DocsBase

from accounts import keys
from accounts.models import User
from queries.openapi import ANY_REQUEST, INTRODUCTION

_CODE = re.compile(r"`([^`]+)`")
_LISTED = re.compile(r"^- `(\w+)`: (.+)$", re.MULTILINE)
# Of the objects in an example, and of the ways that an object may be one of its own parts.
_DEEPEST = 8

# What stands in examples for values that a schema gives none for, by the property's name.
_EXAMPLES: Mapping[str, object] = {
    **dict.fromkeys(("internalId", "batch", "id", "next", "deliveryId"), "01KA4QJ3B1YF0V6M9ZC2T7XWRE"),
    **dict.fromkeys(("destinationChainId", "originChainId", "sourceChainId", "sourceChainIds"), "31337"),
    **dict.fromkeys(("account", "address", "registry", "to"), "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"),
    **dict.fromkeys(("factsRegistry", "blockHashSource"), "0x5FbDB2315678afecb367f032d93F642f64180aa3"),
    **dict.fromkeys(
        ("hash", "blockHash", "transactionHash", "codeHash"),
        "0xb15fd0889a3f1a58f1f2a3ac4a9bd5d7ef1c90a3d4a5e6a77f2d2c11ff74143c",
    ),
    **dict.fromkeys(("word", "slot"), f"0x{15:064x}"),
    **dict.fromkeys(
        ("createdAt", "startedAt", "receivedAt", "acceptedAt", "at", "blockTimestamp"), "2026-11-20T13:58:48Z"
    ),
    **dict.fromkeys(("finishedAt", "completedAt", "endedAt", "lastBeat"), "2026-11-20T13:58:52Z"),
    **dict.fromkeys(("deadlineAt", "nextTryAt"), "2026-11-21T13:58:48Z"),
    **dict.fromkeys(("fee", "spent", "wei", "estimatedWei", "gasPrice"), "139350000000000"),
    **dict.fromkeys(("gas", "gasUsed", "estimatedGas", "expected", "bound"), 139350),
    **dict.fromkeys(("blockNumber", "block", "number"), 15),
    "selector": "block:15",
    "error": "The request has a fault.",
    "code": "invalid_request",
}


@dataclass(frozen=True)
class Named:
    """A parameter, or a property of an object."""

    name: str
    place: str  # `path`, `query` or `header` of a parameter
    kind: SafeString
    description: SafeString
    is_required: bool


@dataclass(frozen=True)
class Answer:
    status: int
    meaning: str
    description: SafeString
    kind: SafeString
    example: str


@dataclass(frozen=True)
class ErrorCode:
    status: int
    code: str  # empty where the status says it all
    meaning: SafeString


@dataclass(frozen=True)
class Operation:
    id: str
    method: str
    path: str
    title: str
    description: SafeString
    needs_key: bool
    parameters: Sequence[Named]
    body: str  # an example; empty: it takes none
    body_kind: SafeString
    answers: Sequence[Answer]
    errors: Sequence[ErrorCode]
    command: str


@dataclass(frozen=True)
class Group:
    name: str
    description: SafeString
    operations: Sequence[Operation]

    @property
    def slug(self) -> str:
        return self.name.lower().replace(" ", "-")


@dataclass(frozen=True)
class ObjectType:
    name: str
    description: SafeString
    properties: Sequence[Named]
    values: SafeString  # of an enumeration


class ApiDocs(DocsBase):
    """For `NinjaAPI(docs=…)`."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        user = request.user if isinstance(request.user, User) else None
        live = user.api_keys.live(timezone.now()) if user else []
        context = {
            **_rendered(api, settings.BASE_URL),
            "keys": [key for key in live if keys.reveal(key) is not None],
            "openapi_url": self.get_openapi_url(api, kwargs),
        }
        response = render(request, "queries/api_docs.html", context)
        add_never_cache_headers(response)
        return response


@lru_cache(maxsize=2)
def _rendered(api: NinjaAPI, base_url: str) -> Mapping[str, object]:
    document = _Document(cast(Mapping[str, Any], api.get_openapi_schema()), base_url)
    groups = list(document.groups())
    types = list(document.types())
    return {
        "groups": groups,
        "introduction": rich(INTRODUCTION),
        "operations": render_to_string(
            "queries/_api_operations.html", {"groups": groups, "types": types, "any_request": rich(ANY_REQUEST)}
        ),
    }


# --- Reading the document ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Document:
    root: Mapping[str, Any]
    base_url: str

    def groups(self) -> Iterator[Group]:
        every = [
            (path, method, operation) for path, item in self.root["paths"].items() for method, operation in item.items()
        ]
        for tag in self.root["tags"]:
            found = [self._operation(*each) for each in every if tag["name"] in each[2]["tags"]]
            yield Group(tag["name"], rich(tag["description"]), found)

    def types(self) -> Iterator[ObjectType]:
        for name, schema in self.root["components"]["schemas"].items():
            required = schema.get("required", ())
            properties = [
                Named(each, "", kind(part), rich(part.get("description", "")), each in required)
                for each, part in schema.get("properties", {}).items()
            ]
            values = kind(schema) if "enum" in schema else SafeString()
            yield ObjectType(name, rich(schema.get("description", "")), properties, values)

    def _operation(self, path: str, method: str, given: Mapping[str, Any]) -> Operation:
        parameters = [
            Named(
                each["name"],
                each["in"],
                kind(each["schema"]),
                rich(each.get("description", "")),
                bool(each.get("required")),
            )
            for each in given["parameters"]
        ]
        body = given.get("requestBody", {}).get("content", {}).get("application/json", {})
        statuses = sorted((int(status), answer) for status, answer in given["responses"].items())
        needs_key = bool(given.get("security"))
        example = json.dumps(body["example"], indent=2) if body else ""
        return Operation(
            id=given["operationId"],
            method=method.upper(),
            path=path,
            title=_title(given["summary"]),
            description=rich(given.get("description", "")),
            needs_key=needs_key,
            parameters=parameters,
            body=example,
            body_kind=kind(body.get("schema", {})),
            answers=[self._answer(status, answer) for status, answer in statuses if status < 400],
            errors=[error for status, answer in statuses if status >= 400 for error in _errors(status, answer)],
            command=self._command(method.upper(), path, parameters, example, needs_key=needs_key),
        )

    def _answer(self, status: int, answer: Mapping[str, Any]) -> Answer:
        schema = answer.get("content", {}).get("application/json", {}).get("schema")
        said = answer["description"]
        return Answer(
            status,
            HTTPStatus(status).phrase,
            SafeString() if said == HTTPStatus(status).phrase else rich(said),
            kind(schema) if schema else SafeString(),
            json.dumps(self._example(schema), indent=2) if schema else "",
        )

    def _command(self, method: str, path: str, parameters: Sequence[Named], body: str, *, needs_key: bool) -> str:
        """Return the request as a command of curl."""
        query = "&".join(f"{each.name}=…" for each in parameters if each.place == "query" and each.is_required)
        url = f"{self.base_url}{path}{'?' if query else ''}{query}"
        options = ['--header "api-key: $API_KEY"'] if needs_key else []
        if body:
            compact = json.dumps(json.loads(body))
            options.append(f"--json '{compact}'")
        elif method != "GET":
            options.append(f"--request {method}")
        return " \\\n  ".join([" ".join(["curl", *options[:1]]), *options[1:], f"'{url}'"])

    def _example(self, schema: Mapping[str, Any], name: str = "", depth: int = 0) -> object:
        """Return a value of this schema, for people to look at."""
        if "$ref" in schema:
            return self._example(self._named(schema), name, depth + 1)
        if "anyOf" in schema:
            choices = [each for each in schema["anyOf"] if each.get("type") != "null"]
            return self._example(choices[0], name, depth) if choices and depth < _DEEPEST else None
        fixed = [schema[keyword] for keyword in ("const", "example") if keyword in schema]
        if chosen := [*fixed, *schema.get("examples", ()), *schema.get("enum", ())]:
            return chosen[0]
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                return [self._example(schema["items"], name, depth + 1)] if depth < _DEEPEST else []
            case written:
                return _plain(name, written)

    def _object(self, schema: Mapping[str, Any], depth: int) -> object:
        if "properties" in schema:
            return {each: self._example(part, each, depth + 1) for each, part in schema["properties"].items()}
        values = schema.get("additionalProperties")
        return {"…": self._example(values, "", depth + 1)} if isinstance(values, Mapping) else {}

    def _named(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.root["components"]["schemas"][_type_name(schema)]
        return found


def _title(summary: str) -> str:
    # Where nobody wrote one, it is the function's name with capitals.
    return summary.capitalize() if summary.istitle() else summary.removesuffix(".")


def _plain(name: str, written: object) -> object:
    """Return an example of a value that is no object and no list. `written` is its `type`."""
    value = _EXAMPLES.get(name)
    match written:
        case "boolean":
            return name in {"isComplete", "isCompleted", "running", "sufficient"}
        case "integer" | "number":
            return value if isinstance(value, int) else 1
        case _:
            return str(value) if value is not None else "…"


def _errors(status: int, answer: Mapping[str, Any]) -> Iterator[ErrorCode]:
    listed = _LISTED.findall(answer["description"])
    if not listed:
        yield ErrorCode(status, "", rich(answer["description"]))
    for code, meaning in listed:
        yield ErrorCode(status, code, inline(meaning))


def _type_name(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


# --- As HTML ----------------------------------------------------------------------------------------------------------


def kind(schema: Mapping[str, Any]) -> SafeString:
    """Return what values a schema allows, in words. Names of objects are links to where the page describes them."""
    if "$ref" in schema:
        name = _type_name(schema)
        return format_html('<a href="#type-{0}">{0}</a>', name)
    if "anyOf" in schema:
        return format_html_join(" or ", "{}", ((kind(each),) for each in schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return format_html_join(", ", "<code>{}</code>", ((value,) for value in values))
    match schema.get("type"):
        case "array":
            return format_html("list of {}", kind(schema["items"]))
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return format_html("object of {}", kind(schema["additionalProperties"]))
        case written:
            bounds = [f"from {schema['minimum']}"] if "minimum" in schema else []
            bounds += [f"to {schema['maximum']}"] if "maximum" in schema else []
            return format_html("{}", " ".join([str(written or ""), *bounds]))


def rich(text: str) -> SafeString:
    """Render the Markdown that the document has: paragraphs, lists and code."""
    blocks = [block.strip() for block in re.split(r"\n\s*\n", text) if block.strip()]
    return format_html_join("", "{}", ((_block(block),) for block in blocks))


def _block(block: str) -> SafeString:
    if not block.startswith("- "):
        return format_html("<p>{}</p>", inline(block))
    return format_html(
        "<ul>{}</ul>", format_html_join("", "<li>{}</li>", ((inline(line[2:]),) for line in block.splitlines()))
    )


def inline(text: str) -> SafeString:
    return mark_safe(_CODE.sub(r"<code>\1</code>", escape(text)))  # noqa: S308 (escaped)
