"""Values of NO_PROXY, and a proxy that answers all requests itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.http_server import serving

# Hosts and values that except them. The addresses are multicast, to which a machine opens no TCP connection.
EXCEPTED = [
    ("service.invalid", "service.invalid"),
    ("service.invalid", "x, .INVALID"),
    ("a.service.invalid", "*.service.invalid"),
    ("service.invalid", "service.invalid:81"),
    ("service.invalid", "x,*"),
    ("224.255.0.1", "224.0.0.0/8"),
    ("224.255.0.1", "ff00::/8, 224.255.0.1:81"),
    ("[ff00::1]", "localhost,127.0.0.1,ff00::/8"),
    ("[ff00::1]", "[ff00::]/8"),
    ("[ff00::1]", "[ff00::/8]"),
    ("[ff00::1]", "[ff00::1]"),
    ("[ff00::1]", "ff00:0::1"),
    ("[ff00::1]", "[ff00::1]:81"),
]
# Hosts and values that don't except them.
NOT_EXCEPTED = [
    ("service.invalid", "invalid.service, vice.invalid,[::1],ff00::/8,/,:,[,//,::/x,[]:1,224.0.0.0/33"),
    ("service.invalid", "service.invalid:82"),
    ("225.0.0.1", "224.0.0.0/8"),
    ("[fe00::1]", "ff00::/8,[::1]"),
    ("[ff00::1]", "[ff00::1]:82"),
]


@contextmanager
def answering(status: int = 200, content: bytes = b"") -> Iterator[tuple[str, list[str]]]:
    """Answer as a server, and as a proxy. Yield the address, and the lines of the received requests."""
    seen = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(f"{self.requestline} {self.headers.get('Proxy-Authorization', '')}".strip())
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Set-Cookie", "session=s3cret")
            self.end_headers()
            self.wfile.write(content)

        def do_CONNECT(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        yield url.removeprefix("http://"), seen
