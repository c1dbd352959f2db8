from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from accounts.middleware import ApiKeyMiddleware


def passed(query: str = "", *, view=None, **environ: Any) -> tuple[HttpRequest, HttpResponse]:
    """Return the request as the view saw it, and the response that the client sees."""
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
    ("query", "key", "rest"),
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
def test_it_takes_the_key_out_and_leaves_the_other_parameters_byte_for_byte(query, key, rest):
    request, _ = passed(query)
    assert presented(request) == key
    assert request.META["QUERY_STRING"] == rest
    assert request.META["RAW_URI"] == request.META["REQUEST_URI"] == ("/path?" + rest if rest else "/path")
    assert "apiKey" not in request.GET


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("a=1&q=bqs_0123456789&b=%7e", "a=1&q=bqs_%5Bredacted%5D&b=%7e"),
        ("bqs_0123456789", "bqs_%5Bredacted%5D"),
        ("q=%62qs%5f0123456789", "q=bqs_%5Bredacted%5D"),
        ("next=/page?apiKey=bqs_0123456789%26a", "next=/page%3FapiKey=bqs_%5Bredacted%5D%26a"),
    ],
)
def test_it_redacts_a_key_that_was_pasted_elsewhere(query, rest):
    request, _ = passed(query, HTTP_REFERER=f"http://testserver/bqs_0123456789?{query}")
    assert presented(request) is None
    assert request.META["QUERY_STRING"] == rest
    assert request.META["RAW_URI"] == request.META["REQUEST_URI"] == f"/path?{rest}"
    assert request.META["HTTP_REFERER"] == f"http://testserver/bqs_%5Bredacted%5D?{rest}"


def test_it_takes_the_key_from_the_header():
    request, _ = passed("a=1", HTTP_API_KEY="k")
    assert presented(request) == "k"
    assert "HTTP_API_KEY" not in request.META
    assert "api-key" not in request.headers
    assert request.GET.dict() == {"a": "1"}


@pytest.mark.parametrize(("header", "key"), [("from-header", "from-header"), ("", "from-query")])
def test_the_header_wins_over_the_parameter_unless_it_is_empty(header, key):
    request, _ = passed("apiKey=from-query", HTTP_API_KEY=header)
    assert presented(request) == key
    assert "from-query" not in repr(request.META)


def test_it_takes_the_key_out_of_the_referrer():
    request, _ = passed(HTTP_REFERER="http://testserver/page?a=1&apiKey=k&b=2")
    assert request.META["HTTP_REFERER"] == "http://testserver/page?a=1&b=2"
    assert presented(request) is None


def test_the_key_does_not_print():
    request, _ = passed("apiKey=bqs_whole_key")
    assert "whole" not in repr(request) + repr(vars(request)) + str(request.presented_key)  # type: ignore[attr-defined]


def test_the_answer_to_a_request_with_a_key_is_not_stored():
    assert passed("apiKey=k")[1].headers["Cache-Control"] == "no-store"
    assert passed(HTTP_API_KEY="k")[1].headers["Cache-Control"] == "no-store"
    assert "Cache-Control" not in passed("a=1")[1].headers


def test_a_view_may_say_how_long_its_answer_keeps():
    def view(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(headers={"Cache-Control": "private, max-age=5"})

    assert passed("apiKey=k", view=view)[1].headers["Cache-Control"] == "private, max-age=5"
