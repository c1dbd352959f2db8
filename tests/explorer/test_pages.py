"""The example of the home page, and error pages that tell nothing."""

import pytest
from django.db import connection
from django.test import Client

from tests.explorer.batches import a_batch, finish, path
from tests.factories import client_of
from tests.service import ALICE, BOB

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


def test_the_home_page_has_an_example_that_its_reader_may_see(settings):
    """One's own, everybody's where everybody may list them, else the documentation's."""
    finish(batch := a_batch())
    a_batch(block=13)
    finish(a_batch(ALICE, BOB, block=14))
    documented = "an example from the documentation"
    assert path(batch) in (html := client_of(ALICE).get("/").text)
    assert "123,456,789.0123" in html
    assert documented not in html
    for reader in (client_of(BOB), Client()):
        settings.PUBLIC_BATCH_LIST = False
        assert batch.pk not in (html := reader.get("/").text)
        assert documented in html
        settings.PUBLIC_BATCH_LIST = True
        assert path(batch) in reader.get("/").text


def test_a_host_that_is_not_ours_gets_a_page_of_ours():
    response = Client().get("/", headers={"host": "evil.example"})
    assert response.status_code == 400
    assert "understood" in response.text
    assert "evil.example" not in response.text


def test_an_error_of_ours_gets_a_page_that_tells_nothing_of_it(caplog):
    def fail(*_arguments, **_more):
        raise RuntimeError("a secret detail")

    with connection.execute_wrapper(fail):
        response = Client(raise_request_exception=False).get("/explorer/query/x")
    assert response.status_code == 500
    assert "Something went wrong here" in response.text
    assert "secret" not in response.text
    assert "a secret detail" in caplog.text
