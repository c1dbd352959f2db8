"""Bodies that are refused before anything parses them. tests/serving/test_requests.py has their sizes, by HTTP."""

import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.usefixtures("unreachable_chain")]
MULTIPART = "multipart/form-data; boundary=b"
# Django finds no base64 in it, as soon as it parses it.
MALFORMED = (
    b"--b\r\nContent-Disposition: form-data; name=a; filename=a\r\n"
    b"Content-Transfer-Encoding: base64\r\n\r\na\r\n--b--\r\n"
)
NAMELESS = b"--b\r\nContent-Disposition:a;filename=a\r\n\r\n\r\n"
FORMS = ["/new-batch", "/new-batch/estimate"]


@pytest.fixture
def anybody() -> Client:
    """With a token of their own making, so that a form is read to find the same one in it."""
    client = Client(enforce_csrf_checks=True)
    client.cookies["csrftoken"] = "x" * 32
    return client


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Yield what the console shows besides the line of each request."""
    (console,) = (one for one in logging.getLogger().handlers if one.get_name() == "console")
    assert isinstance(console, logging.StreamHandler)
    written = io.StringIO()
    before = console.setStream(written)
    logging.getLogger("gunicorn.access").disabled = True
    yield written
    logging.getLogger("gunicorn.access").disabled = False
    console.setStream(before)


def send(client: Client, path: str, body: bytes, **others: Any) -> Any:
    return client.post(path, body, content_type=MULTIPART, **others)


@pytest.mark.parametrize(
    "path", ["/theme", "/sign-in/message", "/sign-out", "/admin/login/", "/new-batch/", "/nowhere"]
)
def test_pages_refuse_it_before_it_is_parsed(anybody, log, path):
    answer = send(anybody, path, MALFORMED)
    assert (answer.status_code, answer.headers["Content-Type"]) == (415, "text/plain; charset=utf-8")
    assert answer.text.startswith("This address takes no multipart/form-data.")
    told = send(anybody, path, MALFORMED, headers={"accept": "application/json"})
    assert (told.status_code, told.json()["code"]) == (415, "unsupported_media_type")
    assert len(log.getvalue().splitlines()) == 2


@pytest.mark.parametrize("path", ["/submit-batch-query", "/estimate-batch-query", "/batch-queries/x/cancel"])
def test_the_api_refuses_it_as_json(anybody, path):
    answer = send(anybody, path, MALFORMED, headers={"origin": "https://a.example"})
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


def test_what_django_does_not_parse_is_not_refused(anybody):
    assert anybody.generic("GET", "/chains.json", MALFORMED, MULTIPART).status_code == 200
    assert anybody.generic("PUT", "/theme", MALFORMED, MULTIPART).status_code == 405


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize("kind", [MULTIPART, "multipart/form-data", "multipart/form-data; boundary=\xe9"])
def test_a_malformed_form_is_one_line_in_the_log(anybody, log, path, kind):
    answer = anybody.post(path, MALFORMED, content_type=kind)
    assert answer.status_code == 400
    assert "<h1>This request can't be understood</h1>" in answer.text
    (line,) = log.getvalue().splitlines()
    assert line.endswith(f"WARNING django.request: Bad request (Unable to parse request body): {path}")


@pytest.mark.parametrize("path", FORMS)
def test_all_parts_count_also_those_without_a_name(anybody, settings, path):
    settings.DATA_UPLOAD_MAX_NUMBER_FIELDS = 100
    # The last boundary counts too.
    assert send(anybody, path, NAMELESS * 99 + b"--b--\r\n").status_code == 403
    answer = send(anybody, path, NAMELESS * 100 + b"--b--\r\n")
    assert answer.status_code == 413
    assert "This is too much for one form" in answer.text
    # It needs no line of its own, nor an end.
    assert send(anybody, path, b"--b" * 101).status_code == 413


def test_the_boundary_is_that_of_the_header(anybody, settings):
    settings.DATA_UPLOAD_MAX_NUMBER_FIELDS = 3
    for kind, boundary, status in [
        ('Multipart/Form-Data;charset=x; BOUNDARY="a b"', b"a b", 413),
        ("multipart/form-data; boundary=b", b"b", 413),
        ("multipart/form-data; boundary=c", b"b", 403),
    ]:
        body = NAMELESS.replace(b"--b", b"--" + boundary) * 4
        assert anybody.post("/new-batch", body, content_type=kind).status_code == status, kind


def test_a_form_larger_than_any_body_is_told_as_such(anybody, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    answer = send(anybody, "/new-batch", b"x" * 1001)
    assert answer.status_code == 413
    assert "This is too much for one form" in answer.text
