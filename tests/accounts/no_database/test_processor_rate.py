"""Costs and times of the limit of processor time, by a clock of the test."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from config import processor_rate
from config.processor_rate import ProcessorRate, limited

SHARE = 0.25


class Clock:
    """A clock that moves only when a test or an answer moves it."""

    def __init__(self) -> None:
        self.now = self.used = 1000.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.used


@pytest.fixture
def clock(monkeypatch, settings) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(time, "thread_time", clock.thread_time)
    monkeypatch.setattr(processor_rate, "_OF_SERVER", 0)
    settings.PROCESSOR_PERCENT = 100 * SHARE
    return clock


class Answer(list[bytes]):
    """An answer whose parts each cost `seconds`, like Django's streaming answers."""

    streaming = True
    is_closed = False

    def __init__(self, clock: Clock, seconds: float, parts: int) -> None:
        super().__init__([b"part"] * parts)
        self._clock, self._seconds = clock, seconds

    def __iter__(self) -> Iterator[bytes]:
        for part in super().__iter__():
            self._clock.used += self._seconds
            yield part

    def close(self) -> None:
        self.is_closed = True


class Site:
    """An application whose answers cost what the test says."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.seconds, self.parts = clock, 0.0, 0
        self.answers: list[Answer] = []
        self.pauses = False
        self._limited = limited(self._answer)

    def _answer(self, environ: dict[str, Any], _: Any) -> Iterable[bytes]:
        if not environ.get(processor_rate._SECONDS_TO_WAIT):
            self.clock.used += self.seconds
        self.answers.append(Answer(self.clock, self.seconds, self.parts))
        return self.answers[-1] if self.parts else [b"whole"]

    def seconds_to_wait(self, seconds: float = 0, address: str = "192.0.2.1", **more: str) -> int:
        """Send a request that costs these seconds, and return for how long it is refused."""
        environ: dict[str, Any] = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": address, **more}
        self.seconds = seconds
        list(self._limited(environ, lambda *_: lambda _: None))
        self.pauses = environ.get(processor_rate._PAUSES, False)
        wait: int = environ.get(processor_rate._SECONDS_TO_WAIT, 0)
        return wait


@pytest.fixture
def site(clock) -> Site:
    return Site(clock)


def test_an_address_may_use_its_share_for_ever_and_little_more(site):
    for _ in range(1000):
        assert site.seconds_to_wait(SHARE) == 0
        site.clock.now += 1
    refused = 0
    for _ in range(1000):
        refused += site.seconds_to_wait(2 * SHARE) > 0
        site.clock.now += 1
    assert 480 < refused < 500


def test_a_refusal_names_the_seconds_after_which_the_address_is_answered(site):
    site.seconds_to_wait(10)
    wait = site.seconds_to_wait()
    assert wait == 10 / SHARE - processor_rate._AHEAD
    site.clock.now += wait - 1
    assert site.seconds_to_wait() == 1
    site.clock.now += 1
    assert site.seconds_to_wait() == 0


def test_an_address_that_was_idle_has_saved_nothing(site):
    site.seconds_to_wait(SHARE)
    site.clock.now += 10**6
    site.seconds_to_wait(10)
    assert site.seconds_to_wait() == 10 / SHARE - processor_rate._AHEAD


def test_addresses_count_apart_and_the_networks_of_ipv6_together(site):
    site.seconds_to_wait(10, "2001:db8::1")
    assert site.seconds_to_wait(address="2001:db8::ffff:2") > 0
    assert site.seconds_to_wait(address="2001:db8:0:1::1") == 0


def test_an_answer_counts_while_it_is_sent(site):
    site.parts = 10
    site.seconds_to_wait(1)
    assert site.seconds_to_wait() > 10
    assert site.answers[0].is_closed


def test_programs_of_an_address_are_not_refused_and_cost_its_readers_nothing(site):
    for _ in range(10):
        assert site.seconds_to_wait(1, PATH_INFO="/batch-query-status") == 0
        assert site.seconds_to_wait(1, PATH_INFO="/healthz") == 0
    assert site.seconds_to_wait() == 0


@pytest.mark.parametrize("sent", [{"HTTP_API_KEY": "any"}, {"QUERY_STRING": "block=5&apiKey=any"}])
def test_a_program_with_a_key_is_not_refused_at_a_path_that_is_a_page_too(site, sent):
    site.seconds_to_wait(10)
    assert site.seconds_to_wait(PATH_INFO="/facts", **sent) == 0
    assert site.seconds_to_wait(PATH_INFO="/facts") > 0
    assert site.seconds_to_wait(PATH_INFO="/explorer", **sent) > 0


def test_after_a_flood_an_address_that_others_share_is_answered_within_a_minute(site):
    site.seconds_to_wait(100)
    assert site.seconds_to_wait() == 60 - processor_rate._AHEAD


def test_clients_that_have_no_address_of_their_own_have_no_share(site, settings):
    assert site.seconds_to_wait(10, "") == site.seconds_to_wait(10, "") == 0
    settings.IS_CLIENT_HIDDEN = True
    assert site.seconds_to_wait(10) == site.seconds_to_wait(10) == 0


@pytest.mark.parametrize(("header", "pauses"), [("", True), ("X-Forwarded-For", False)])
def test_no_pause_delays_another_client_on_a_connection_of_a_proxy(site, settings, header, pauses):
    settings.CLIENT_ADDRESS_HEADER = header
    site.seconds_to_wait(10, HTTP_X_FORWARDED_FOR="192.0.2.7")
    assert site.pauses is pauses


# Processor seconds of a refresh, as measured for an open batch.
REFRESH = 0.024


def test_the_open_pages_of_an_office_are_never_refused_beside_a_reader_who_is(site):
    """Each of 30 people has three pages: a visible one that refreshes each second, and two that do so each minute.
    Another process gets half of the requests.
    """
    refused = 0
    for second in range(600):
        for _ in range(15 + second % 2):
            assert site.seconds_to_wait(REFRESH, HTTP_HX_REQUEST="true") == 0
        refused += site.seconds_to_wait(1) > 0
        site.clock.now += 1
    assert refused > 400


def test_the_table_is_bounded_and_forgets_those_that_are_the_least_ahead(clock, monkeypatch):
    monkeypatch.setattr(processor_rate, "_MAX_ADDRESSES", 10)
    rate = ProcessorRate(SHARE)
    rate.count("attacker", 10)
    for number in range(1000):
        rate.count(f"address {number}", 0.01)
        assert len(rate) <= 10
    assert rate.ahead("attacker") == 10 / SHARE
    assert rate.ahead("address 0") == 0
