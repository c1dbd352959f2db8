"""What clients may hold of the web server: in time, in number, and in turns."""

import errno
import os
import resource
import signal
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from waitress.adjustments import Adjustments

from config.web_server import Turns, _Request
from tests.serving.app import LARGE, SLOW_SECONDS
from tests.serving.process import WebServer, ask, connect, is_closed, read_answer, serving

GET = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
# Deadlines are looked at once a second; the rest is for a busy machine.
LATE_SECONDS = 5


def drip(connection: socket.socket, piece: bytes, seconds: float) -> float:
    """Send the piece again and again until the server has answered or closed; for how many seconds that went."""
    began = time.monotonic()
    connection.settimeout(0.1)
    while time.monotonic() < began + seconds:
        try:
            connection.sendall(piece)
            connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            continue
        except ConnectionError:
            pass
        break
    connection.settimeout(20)
    return time.monotonic() - began


def send_without_end(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"x")
        time.sleep(0.1)


# --- In time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "code"), [(b"/submit-batch-query", "request_timeout"), (b"/sign-in", None)], ids=["api", "page"]
)
@pytest.mark.parametrize(
    ("start", "piece"),
    [(b"", b"a: b\r\n"), (b"", b"x"), (b"Content-Length: 1000\r\n\r\n", b"x")],
    ids=["fields", "field", "body"],
)
def test_a_request_has_a_deadline_that_no_drop_puts_off(short, path, code, start, piece):
    with connect(short.port) as connection:
        connection.sendall(b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\n" % path + start)
        assert 0.5 < drip(connection, piece, 2 * LATE_SECONDS) < LATE_SECONDS
        answer = read_answer(connection)
        assert (answer.status, answer.code) == (408, code)
        assert is_closed(connection)


def test_a_connection_without_a_request_is_closed_in_silence(short):
    began = time.monotonic()
    with connect(short.port) as connection:
        assert connection.recv(1) == b""
    assert 0.5 < time.monotonic() - began < LATE_SECONDS


def test_a_connection_waits_longer_for_another_request(short):
    with connect(short.port) as connection:
        connection.sendall(GET % b"/one")
        read_answer(connection)
        began = time.monotonic()
        assert connection.recv(1) == b""
    assert 1.5 < time.monotonic() - began < 2 + LATE_SECONDS


def test_empty_lines_keep_no_connection(short):
    with connect(short.port) as connection:
        assert drip(connection, b"\r\n", 2 * LATE_SECONDS) < LATE_SECONDS
        assert is_closed(connection)


def test_a_request_begins_with_its_first_byte_that_is_no_empty_line():
    request = _Request(Adjustments())
    request.received(b"\r\n")
    request.began -= 60
    request.received(b"G")
    assert time.monotonic() - request.began < 30
    request.began -= 60
    request.received(b"E")
    assert time.monotonic() - request.began > 30


def test_a_body_may_take_longer_the_larger_it_is(tmp_path):
    with (
        serving(tmp_path, app="tests.serving.app:application", config="tests/serving/short_and_slow.py") as server,
        connect(server.port) as connection,
    ):
        connection.sendall(b"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 40000\r\n\r\n")
        for _ in range(4):
            time.sleep(0.75)  # Three times as long as a header may take.
            connection.sendall(b"x" * 10_000)
        assert read_answer(connection).status == 200


def test_an_answer_that_is_not_read_is_dropped(short):
    assert ask(short.port, GET % b"/large").body == LARGE
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", short.port))
        connection.sendall(GET % b"/large")
        time.sleep(3 + LATE_SECONDS)
        # What the system had taken is still sent.
        got = b"".join(iter(lambda: connection.recv(1024 * 1024), b""))
        assert len(got) < len(LARGE) / 2


def test_after_a_refusal_it_is_read_on_for_a_while_and_no_longer(short):
    with connect(short.port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
        assert read_answer(connection).status == 413
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            send_without_end(connection)
        assert 0.5 < time.monotonic() - began < LATE_SECONDS


def test_urgent_data_ends_a_connection(short):
    with connect(short.port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        connection.send(b"!", socket.MSG_OOB)
        assert is_closed(connection)


# --- In number --------------------------------------------------------------------------------------------------------


def test_slow_clients_hold_no_thread(short):
    with ExitStack() as opened:
        for _ in range(40):
            slow = opened.enter_context(connect(short.port))
            slow.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        began = time.monotonic()
        assert ask(short.port, GET % b"/mine").body == b"/mine"
        assert ask(short.port, GET % b"/other", source="127.0.0.2").body == b"/other"
        assert time.monotonic() - began < 1


def test_of_one_address_the_connection_goes_that_has_waited_longest(short):
    with ExitStack() as opened:
        other = opened.enter_context(connect(short.port, "127.0.0.2"))
        first, *others = (opened.enter_context(connect(short.port)) for _ in range(8))
        assert ask(short.port, GET % b"/ninth").status == 200
        assert is_closed(first)
        for connection in (other, *others):
            connection.sendall(GET % b"/still")
            assert read_answer(connection).body == b"/still"


def test_where_all_of_an_address_are_at_work_another_request_of_it_is_refused(short):
    with ExitStack() as opened:
        working = []
        for _ in range(8):
            working.append(opened.enter_context(connect(short.port)))
            # Before the next one connects: the server accepts in that order, and reads what has come before it makes
            # room.
            working[-1].sendall(GET % b"/slow")
        answer = ask(short.port, GET % b"/ninth")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert ask(short.port, GET % b"/other", source="127.0.0.2").status == 200
        assert [read_answer(connection).status for connection in working] == [200] * 8


def test_in_all_the_connection_goes_that_has_waited_longest(tmp_path):
    with serving(tmp_path, app="tests.serving.app:application", MAX_CONNECTIONS="4") as server, ExitStack() as opened:
        sources = [f"127.0.0.{last}" for last in range(2, 6)]
        first, *others = (opened.enter_context(connect(server.port, source)) for source in sources)
        assert ask(server.port, GET % b"/fifth").status == 200
        assert is_closed(first)
        for connection in others:
            connection.sendall(GET % b"/still")
            assert read_answer(connection).status == 200


def test_there_are_no_more_connections_than_files_may_be_open(tmp_path):
    with (
        serving(tmp_path, app="tests.serving.app:application", config="tests/serving/few_files.py") as server,
        ExitStack() as opened,
    ):
        assert "may open 160 files (ulimit -n), so it holds 30 connections at most" in server.log(until="ulimit")
        for _ in range(200):
            opened.enter_context(connect(server.port)).sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(2):
            assert ask(server.port, GET % b"/other", source="127.0.0.2").body == b"/other"


def test_the_limit_of_open_files_is_raised_for_the_connections(tmp_path):
    with serving(
        tmp_path, app="tests.serving.app:application", config="tests/serving/some_files.py", MAX_CONNECTIONS="70"
    ) as server:
        _, (process,) = server.pids()
        assert resource.prlimit(process, resource.RLIMIT_NOFILE)[0] == 240
        assert "ulimit" not in server.installation.log("web").read_text()


def test_behind_a_proxy_its_address_may_hold_all(tmp_path):
    with (
        serving(
            tmp_path, app="tests.serving.app:application", MAX_CONNECTIONS="150", CLIENT_ADDRESS_HEADER="X-Real-IP"
        ) as server,
        ExitStack() as opened,
    ):
        connections = [opened.enter_context(connect(server.port)) for _ in range(140)]
        for connection in connections:
            connection.sendall(GET % b"/one")
            assert read_answer(connection).status == 200


# --- In turns ---------------------------------------------------------------------------------------------------------


class Asked:
    def __init__(self, client: str) -> None:
        self._client = client

    def client(self) -> str:
        return self._client

    def service(self) -> None:
        if self._client == "defect":
            raise ValueError

    def cancel(self) -> None: ...


def turns_of(clients: str, most: int) -> Turns:
    turns = Turns(most)
    for client in clients:
        turns.append(Asked(client))
    return turns


def test_each_client_has_one_request_in_turn():
    turns = turns_of("aaabac", most=4)
    served = ""
    while turns:
        served += turns.popleft().asked.client()
    assert served == "abcaaa"
    assert len(turns) == 0


def test_one_client_has_no_more_threads_than_it_may():
    turns = turns_of("aaaab", most=2)
    running = [turns.popleft() for _ in range(3)]
    assert [turn.asked.client() for turn in running] == ["a", "b", "a"]
    assert (bool(turns), len(turns)) == (False, 2)
    turns.append(Asked("c"))
    assert turns.popleft().asked.client() == "c"
    running[1].service()
    assert not turns
    running[0].service()
    assert turns.popleft().asked.client() == "a"
    assert not turns
    running[2].cancel()
    assert turns


def test_a_request_that_fails_gives_its_thread_back():
    turns = Turns(1)
    turns.append(Asked("defect"))
    turns.append(Asked("defect"))
    with pytest.raises(ValueError):
        turns.popleft().service()
    assert turns.popleft().asked.client() == "defect"


def test_one_client_leaves_a_thread_to_the_others(tmp_path):
    with serving(tmp_path, app="tests.serving.app:application", threads=3) as server, ExitStack() as opened:
        connections = [opened.enter_context(connect(server.port)) for _ in range(6)]
        for connection in connections:
            connection.sendall(GET % b"/slow")
        time.sleep(SLOW_SECONDS / 2)  # They are there.
        began = time.monotonic()
        assert ask(server.port, GET % b"/quick", source="127.0.0.2").status == 200
        assert time.monotonic() - began < SLOW_SECONDS / 4
        assert [read_answer(connection).status for connection in connections] == [200] * 6


@pytest.mark.parametrize("proxied", [False, True], ids=["direct", "proxied"])
def test_who_asks_much_waits_for_himself(tmp_path, proxied):
    """By its address, or by what a proxy says of it: one request of another waits for one of those at most."""
    header = {"CLIENT_ADDRESS_HEADER": "X-Real-IP"} if proxied else {}
    with serving(tmp_path, app="tests.serving.app:application", threads=1, **header) as server, ExitStack() as opened:
        connections = [opened.enter_context(connect(server.port)) for _ in range(6)]
        for connection in connections:
            connection.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nX-Real-IP: 192.0.2.1\r\n\r\n")
        time.sleep(SLOW_SECONDS / 2)  # They are there.
        began = time.monotonic()
        source = "127.0.0.1" if proxied else "127.0.0.2"
        request = b"GET /quick HTTP/1.1\r\nHost: x\r\nX-Real-IP: 192.0.2.1, 192.0.2.2\r\n\r\n"
        assert ask(server.port, request, source=source).status == 200
        assert time.monotonic() - began < 2.5 * SLOW_SECONDS
        assert [read_answer(connection).status for connection in connections] == [200] * 6


# --- Processes --------------------------------------------------------------------------------------------------------


def test_a_process_that_dies_is_replaced(tmp_path):
    with serving(tmp_path, app="tests.serving.app:application") as server:
        _, [process] = server.pids()
        os.kill(process, signal.SIGKILL)
        server.installation.wait_until(server.answers)
        assert process not in server.pids()[1]


def test_told_to_stop_it_answers_what_it_has_and_closes_what_waits(tmp_path):
    with serving(tmp_path, app="tests.serving.app:application") as server, ExitStack() as opened:
        idle, asking = (opened.enter_context(connect(server.port)) for _ in range(2))
        idle.sendall(GET % b"/one")
        read_answer(idle)
        asking.sendall(GET % b"/slow")
        time.sleep(SLOW_SECONDS / 4)  # It is being answered.
        supervisor, _ = server.pids()
        began = time.monotonic()
        os.kill(supervisor, signal.SIGTERM)
        assert read_answer(asking).body == b"/slow"
        assert is_closed(idle)
        assert is_closed(asking)
        assert server.installation._processes["web"]._process.wait(10) == 0
        assert time.monotonic() - began < 5


def test_without_its_supervisor_it_stops(tmp_path):
    with serving(tmp_path, app="tests.serving.app:application") as server:
        supervisor, _ = server.pids()
        os.kill(supervisor, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while server.answers():
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_on_a_unix_socket_there_are_no_addresses_to_bound(tmp_path):
    path = tmp_path / "socket"
    with (
        serving(tmp_path, app="tests.serving.app:application", also=[f"unix:{path}"], MAX_CONNECTIONS_PER_ADDRESS="1"),
        socket.socket(socket.AF_UNIX) as one,
        socket.socket(socket.AF_UNIX) as other,
    ):
        for connection in (one, other):
            connection.settimeout(20)
            connection.connect(str(path))
            connection.sendall(GET % b"/first")
            assert read_answer(connection).body == b"/first"
        for connection in (one, other):
            connection.sendall(GET % b"/second")
            assert read_answer(connection).body == b"/second"


def test_in_all_are_those_of_all_sockets(tmp_path):
    path = tmp_path / "socket"
    with (
        serving(tmp_path, app="tests.serving.app:application", also=[f"unix:{path}"], MAX_CONNECTIONS="2") as server,
        connect(server.port, "127.0.0.2") as first,
        connect(server.port, "127.0.0.3") as second,
        socket.socket(socket.AF_UNIX) as third,
    ):
        second.sendall(GET % b"/second")
        assert read_answer(second).status == 200
        began = time.monotonic()
        third.connect(str(path))
        assert is_closed(first)
        assert time.monotonic() - began < LATE_SECONDS
        second.sendall(GET % b"/second")
        assert read_answer(second).status == 200


# --- In bytes ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def little_room(tmp_path_factory) -> Iterator[WebServer]:
    folder = tmp_path_factory.mktemp("little_room")
    with serving(folder, config="tests/serving/little_room.py", app="tests.serving.app:application") as server:
        yield server


def in_files(server: WebServer) -> int:
    """Bytes of the temporary files that its processes hold."""
    sizes = []
    for pid in server.pids()[1]:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            # One that was closed meanwhile is gone.
            with suppress(OSError):
                if stat.S_ISREG((found := descriptor.stat()).st_mode) and not found.st_nlink:
                    sizes.append(found.st_size)
    return sum(sizes)


def holds_at_most(server: WebServer, size: int) -> bool:
    """Whether it does before long."""
    deadline = time.monotonic() + LATE_SECONDS
    while in_files(server) > size and time.monotonic() < deadline:
        time.sleep(0.05)
    return in_files(server) <= size


def has_emptied(server: WebServer) -> bool:
    return holds_at_most(server, 0)


def ask_without_reading(server: WebServer, source: str = "127.0.0.1") -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.bind((source, 0))
    connection.settimeout(20)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(GET % b"/large")
    assert connection.recv(1, socket.MSG_PEEK)
    return connection


def rest(connection: socket.socket) -> int:
    """How many bytes still come before the connection ends; it is the last that is asked of it."""
    return sum(map(len, iter(lambda: connection.recv(1024 * 1024), b"")))


def given(server: WebServer) -> int:
    return server.installation.log("web").read_text().count('"GET /large" 200')


def ask_one_after_the_other(server: WebServer, sources: Sequence[str], until: ExitStack) -> list[socket.socket]:
    asking = []
    for source in sources:
        before = given(server)
        asking.append(until.enter_context(ask_without_reading(server, source)))
        deadline = time.monotonic() + LATE_SECONDS
        while given(server) == before:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    return asking


def test_of_one_clients_unread_answers_that_goes_which_has_waited_longest(little_room):
    with ExitStack() as until:
        sources = ["127.0.0.1"] * 5 + ["127.0.0.2"]
        *dropped, first, second, other = ask_one_after_the_other(little_room, sources, until)
        assert f"an unread answer of 127.0.0.1 is dropped, {len(LARGE)}" in little_room.log(until="is dropped")
        for connection in dropped:
            assert rest(connection) < len(LARGE)
        assert in_files(little_room) <= 3 * len(LARGE)
        for connection in (first, second, other):
            assert len(read_answer(connection).body) == len(LARGE)
        assert has_emptied(little_room)


def test_in_all_that_unread_answer_goes_which_has_waited_longest(little_room):
    with ExitStack() as until:
        sources = [f"127.0.0.{number}" for number in range(11, 15)]
        dropped, *kept = ask_one_after_the_other(little_room, sources, until)
        little_room.log(until="an unread answer of 127.0.0.11 is dropped")
        assert rest(dropped) < len(LARGE)
        for connection in kept:
            assert len(read_answer(connection).body) == len(LARGE)


def test_what_was_read_takes_no_room_while_the_connection_waits_for_another_request(little_room):
    with connect(little_room.port) as connection:
        connection.sendall(GET % b"/large")
        assert len(read_answer(connection).body) == len(LARGE)
        assert has_emptied(little_room)
        connection.sendall(GET % b"/more")
        assert read_answer(connection).body == b"/more"


def test_of_bodies_that_are_not_complete_that_is_refused_which_has_come_for_longest(little_room):
    size = 3 * 1024 * 1024
    with ExitStack() as all_of_them:
        sending = [all_of_them.enter_context(connect(little_room.port)) for _ in range(14)]
        for connection in sending:
            connection.sendall(b"POST /submit-batch-query HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
            connection.sendall(bytes(size - 1))
        answer = read_answer(sending[0])
        assert (answer.status, answer.code) == (503, "overloaded")
        assert answer.headers["Retry-After"] == "1"
        # What came last may still be on its way in, and another's on its way out.
        assert holds_at_most(little_room, 2 * len(LARGE) + 2**20)
        sending[-1].sendall(b"x")
        assert read_answer(sending[-1]).status == 200
    assert has_emptied(little_room)


# --- The disk ---------------------------------------------------------------------------------------------------------


def test_where_a_large_body_finds_no_room_it_is_refused_for_now(monkeypatch):
    monkeypatch.setattr("tempfile.TemporaryFile", no_space)
    request = _Request(Adjustments())
    request.received(b"POST /submit-batch-query HTTP/1.1\r\nHost: x\r\nContent-Length: 600000\r\n\r\n")
    request.received(bytes(599_999))
    assert request.completed
    assert request.error is not None
    assert request.error.code == 503


def test_an_answer_that_finds_no_room_ends_at_once_and_the_log_says_so(tmp_path):
    with (
        serving(tmp_path, config="tests/serving/small_files.py", app="tests.serving.app:application") as server,
        ask_without_reading(server) as connection,
    ):
        began = time.monotonic()
        assert rest(connection) < len(LARGE)
        assert time.monotonic() - began < LATE_SECONDS
        log = server.log(
            until="An answer is broken off, because it can't be kept until it is read: File too large (/large of 127"
        )
        assert '"GET /large" 200' not in log
        assert "Traceback" not in log
        assert ask(server.port, GET % b"/next").body == b"/next"


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
