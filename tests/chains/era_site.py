"""A server of a folder's files. It supports ranges, or misbehaves."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

from tests.http_server import serving


@dataclass
class Site:
    folder: Path
    understands_ranges: bool = True
    status: int = 0
    """A wrong status."""
    more: int = 0
    """Number of superfluous bytes."""
    shift: int = 0
    """Offset between the sent and the requested range."""
    told_range: str = ""
    """A wrong Content-Range."""
    asked: list[tuple[str, str]] = field(default_factory=list)

    def answer(self, name: str, requested_range: str) -> tuple[int, bytes, str]:
        self.asked.append((name, requested_range))
        path = self.folder / name
        if not path.exists() or self.status:
            return self.status or 404, b"", ""
        content = path.read_bytes()
        if not self.understands_ranges:
            return 200, content, ""
        first, _, last = requested_range.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(content) - int(last))
        end = min(int(last) + 1 if first else len(content), len(content))
        content_range = self.told_range or f"bytes {start}-{end - 1}/{len(content)}"
        return 206, content[start + self.shift : end + self.shift] + bytes(self.more), content_range


@contextmanager
def served(site: Site) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, content, content_range = site.answer(
                urlsplit(self.path).path.rpartition("/")[2], self.headers.get("Range", "")
            )
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if content_range:
                self.send_header("Content-Range", content_range)
            self.end_headers()
            # A client that needs less hangs up early.
            with suppress(ConnectionError):
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    with serving(Handler) as url:
        yield f"{url}/some/folder"
