"""`/livez` and `/readyz`."""

import html

import pytest
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from config.configured_chains import forget_chains
from tests.disks import locked_database
from tests.service import chains_toml

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


def ready() -> tuple[int, str]:
    answer = Client().get("/readyz")
    assert "no-store" in answer.headers["Cache-Control"]
    return answer.status_code, answer.json()["problem"]


def test_a_process_is_ready_with_its_database_and_lives_without(django_assert_num_queries):
    assert ready() == (200, "")
    # A migrated database stays migrated. Storage is checked every ten seconds.
    with django_assert_num_queries(0):
        assert ready() == (200, "")
        assert Client().get("/livez").json() == {"status": "ok"}


def test_it_is_not_ready_before_this_version_s_migrations():
    MigrationRecorder(connection).record_unapplied("queries", "0002_version_0_3")
    lacks = "The database lacks migrations of this version: run manage.py migrate."
    assert ready() == (503, lacks)
    health = Client().get("/healthz")
    assert (health.status_code, health.json()["database"]) == (503, "unavailable")
    assert (health.json()["codes"], health.json()["problems"]) == (["database_unavailable"], [lacks])


def test_it_is_ready_with_what_a_newer_version_has_added():
    """The processes are replaced one after another."""
    MigrationRecorder(connection).record_applied("queries", "9999_newer")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE queries_batch ADD COLUMN newer integer NULL")
    assert ready() == (200, "")


@pytest.mark.django_db(transaction=True)
def test_it_is_not_ready_while_nothing_can_be_stored():
    with locked_database():
        assert ready() == (503, "The database of this service is locked for longer than usual.")


def test_it_is_not_ready_while_the_database_does_not_answer():
    def fail(_execute, _sql, _params, _many, _context):
        raise OperationalError("unable to open /somewhere/private.sqlite3")

    with connection.execute_wrapper(fail):
        assert ready() == (503, "The database does not answer.")
        assert Client().get("/livez").status_code == 200


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("not toml [", "it is not TOML: Expected '=' after a key"),
        ("nonsense = 1", "chains: at least one is needed; nonsense: is not known here."),
        (None, "it can't be read: No such file or directory"),
    ],
)
def test_without_chains_it_is_not_ready_and_each_request_hears_so(settings, tmp_path, content, fault):
    settings.CHAINS_FILE.unlink()
    if content:
        settings.CHAINS_FILE.write_text(content)
    forget_chains()
    status, problem = ready()
    assert status == 503
    assert problem.startswith(f"chains.toml can't be used: {fault}")
    by_proxy = Client().get("/readyz", headers={"via": "1.1 proxy"})
    assert (by_proxy.status_code, by_proxy.json()["problem"]) == (503, "chains.toml can't be used.")
    health = Client().get("/healthz")
    assert (health.status_code, health.json()["codes"], health.json()["problems"]) == (503, ["chains_file"], [problem])
    client = Client(raise_request_exception=False)
    for path in ("/", "/sign-in", "/chain-connections", "/metrics"):
        answer = client.get(path)
        assert (path, answer.status_code, "Retry-After" in answer.headers) == (path, 503, True)
        assert "until its operator mends it" in html.unescape(answer.text)
    assert client.get("/chain-connections").json()["code"] == "chain_unavailable"
    # A repair needs no new process.
    chains_toml(tmp_path, "http://127.0.0.1:1")
    assert ready() == (200, "")
    assert client.get("/chain-connections").status_code == 200


def test_probes_are_answered_over_http_and_only_read(settings):
    settings.SECURE_SSL_REDIRECT = True
    assert Client().get("/healthz").status_code != 301
    for path in ("/livez", "/readyz", "/metrics"):
        assert Client().get(path).status_code == 200
        assert Client().post(path).status_code == 405


def test_clients_of_older_services_hear_from_any_page_that_it_is_alive():
    answer = Client().get("/is-alive", headers={"origin": "https://elsewhere.example"})
    assert (answer.status_code, answer.content, answer.headers["Content-Type"]) == (
        200,
        b"OK",
        "text/plain; charset=utf-8",
    )
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert Client(enforce_csrf_checks=True).post("/is-alive").status_code == 405
