from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from accounts.middleware import ApiKeyMiddleware


def passed(query: str = "", *, view=None, **environ: Any) -> tuple[HttpRequest, HttpResponse]:
    """Return the request that reaches the view, and the response that reaches the client."""
    seen: list[HttpRequest] = []

    def note(request: HttpRequest) -> HttpResponse:
        seen.append(request)
        return view(request) if view else HttpResponse("seen")

    target = "/path" + ("?" + query if query else "")
    request = RequestFactory().get("/path", RAW_URI=target, REQUEST_URI=target, **environ)
    request.META["QUERY_STRING"] = query
    response = ApiKeyMiddleware(note)(request)
    return seen[0], response


def presented(request: HttpRequest) -> str | None:
    presented = request.presented_key  # type: ignore[attr-defined]
    return presented.get_secret_value() if presented else None


@pytest.mark.parametrize(
    ("query", "key", "remaining_query"),
    [
        ("", None, ""),
        ("a=1&b=2", None, "a=1&b=2"),
        ("apiKey=k", "k", ""),
        ("apiKey=k&a=1", "k", "a=1"),
        ("a=1&apiKey=k", "k", "a=1"),
        ("a=%7e+%2B&&=&apiKey=k&b", "k", "a=%7e+%2B&&=&b"),
        ("apiKey=first&a=1&apiKey=second", "first", "a=1"),
        ("%61pi%4Bey=k&a=1", "k", "a=1"),
        ("apiKey=%6B%2B+x", "k+ x", ""),
        ("apiKey=a=b", "a=b", ""),
        ("apiKey=&a=1", None, "a=1"),
        ("apiKey", None, ""),
        ("xapiKey=k&apiKeyx=k", None, "xapiKey=k&apiKeyx=k"),
        ("a=?apiKey=k", None, "a=?apiKey=k"),
        ("a=\xff%ff&apiKey=k", "k", "a=\xff%ff"),
        ("apiKey=%ED%A0%80", "\ufffd\ufffd\ufffd", ""),
    ],
)
def test_the_middleware_removes_the_api_key_and_leaves_other_parameters_byte_for_byte(query, key, remaining_query):
    request, answer = passed(query, HTTP_REFERER=f"http://testserver/page?{query}" if query else "")
    assert presented(request) == key
    assert request.META["QUERY_STRING"] == remaining_query
    assert request.META["HTTP_REFERER"] == (f"http://testserver/page?{remaining_query}".rstrip("?") if query else "")
    assert answer.headers.get("Cache-Control") == ("no-store" if key else None)
    assert (
        request.META["RAW_URI"]
        == request.META["REQUEST_URI"]
        == ("/path?" + remaining_query if remaining_query else "/path")
    )
    assert "apiKey" not in request.GET


@pytest.mark.parametrize(
    ("query", "remaining_query"),
    [
        ("a=1&q=bqs_0123456789&b=%7e", "a=1&q=bqs_%5Bredacted%5D&b=%7e"),
        ("bqs_0123456789", "bqs_%5Bredacted%5D"),
        ("q=%62qs%5f0123456789", "q=bqs_%5Bredacted%5D"),
        ("next=/page?apiKey=bqs_0123456789%26a", "next=/page%3FapiKey=bqs_%5Bredacted%5D%26a"),
    ],
)
def test_the_middleware_redacts_a_key_pasted_into_another_parameter_or_path(query, remaining_query):
    request, _ = passed(query, HTTP_REFERER=f"http://testserver/bqs_0123456789?{query}")
    assert presented(request) is None
    assert request.META["QUERY_STRING"] == remaining_query
    assert request.META["RAW_URI"] == request.META["REQUEST_URI"] == f"/path?{remaining_query}"
    assert request.META["HTTP_REFERER"] == f"http://testserver/bqs_%5Bredacted%5D?{remaining_query}"


@pytest.mark.parametrize(("header", "key"), [("from-header", "from-header"), ("", "from-query")])
def test_the_header_wins_over_the_parameter_unless_it_is_empty(header, key):
    def view(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(headers={"Cache-Control": "private, max-age=5"})

    request, answer = passed("apiKey=from-query&a=1", view=view, HTTP_API_KEY=header)
    assert presented(request) == key
    assert request.GET.dict() == {"a": "1"}
    assert not [text for text in ("from-query", "from-header") if text in repr(request.META)]
    # The middleware keeps the Cache-Control header that the view has set.
    assert answer.headers["Cache-Control"] == "private, max-age=5"
