"""nginx before a web server, as on a host (docs/operating/nginx.conf) or in a container (deploy/nginx)."""

import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import yaml

from devnet.devchain import PROJECT
from devnet.ports import free_port

NGINX, OPENSSL = shutil.which("nginx"), shutil.which("openssl")
# This context accepts any certificate. It is shared, because each new one would read the system's certificates.
TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE
COMPOSE = yaml.safe_load((PROJECT / "deploy" / "compose.yml").read_text())


class Nginx(NamedTuple):
    port: int
    tls: bool

    @property
    def url(self) -> str:
        return f"http{'s' * self.tls}://127.0.0.1:{self.port}"

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self.port), 20, source_address=(source, 0))
        return TRUSTING.wrap_socket(plain, server_hostname="batch-queries.example.org") if self.tls else plain


@contextmanager
def running_nginx(
    folder: Path, behind: int, connections: int = 64, changed: Iterable[tuple[str, str]] = ()
) -> Iterator[Nginx]:
    """Run nginx as on a host before the service on port `behind`. `changed` replaces words of the configuration."""
    port = free_port()
    subject = ("-subj", "/CN=batch-queries.example.org", "-keyout", str(folder / "key"), "-out", str(folder / "pem"))
    assert OPENSSL
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject], check=True, capture_output=True
    )
    text = _replaced(
        PROJECT / "docs" / "operating" / "nginx.conf",
        {
            "    listen [::]:443 ssl;\n": "",
            "    listen [::]:80;\n": "",
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "listen 80": f"listen 127.0.0.1:{free_port()}",
            "127.0.0.1:8000": f"127.0.0.1:{behind}",
            "/etc/ssl/private/batch-queries.example.org.key": str(folder / "key"),
            "/etc/ssl/batch-queries.example.org.pem": str(folder / "pem"),
            "/var/log/nginx": str(folder),
            "/opt/batch-query-service": str(project_in(folder)),
            **dict(changed),
        },
    )
    (folder / "service.conf").write_text(text)
    main = (
        f"daemon off; pid {folder}/pid; events {{ worker_connections {connections}; }}\nhttp {{\ngzip on;\n"
        # Debian's configuration allows all of these.
        "ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3; ssl_ciphers DEFAULT:@SECLEVEL=0;\n"
        f"include {folder}/service.conf;\n}}\n"
    )
    with started(folder, main, port):
        yield Nginx(port, tls=True)


@contextmanager
def running_container_nginx(
    folder: Path, service: str, outer_proxy: str = "", resolver: str = "127.0.0.1:1"
) -> Iterator[Nginx]:
    """Run nginx as in a container before `service`, an address or a name with a port. `resolver` is a name server."""
    port = free_port()
    container = COMPOSE["services"]["nginx"]
    (published,) = container["ports"]
    assert published.endswith(":8080")
    (mounted,) = [folder for there, _, folder in (v.partition(":") for v in container["volumes"]) if there == "./nginx"]
    text = _replaced(
        PROJECT / "deploy" / "nginx" / "nginx.conf.template",
        {
            "${OUTER_PROXY}": outer_proxy or container["environment"]["OUTER_PROXY"].partition(":-")[2].rstrip("}"),
            "${NGINX_LOCAL_RESOLVERS}": resolver,
            "listen 8080": f"listen 127.0.0.1:{port}",
            "web:8000": service,
            mounted.removesuffix(":ro"): str(project_in(folder) / "deploy" / "nginx"),
            "user nginx;": "",
            # Each process keeps names by itself.
            "worker_processes auto": "worker_processes 1",
            "/tmp/nginx.pid": f"{folder}/pid",
            "/dev/stdout": f"{folder}/access.log",
        },
    )
    with started(folder, text, port):
        yield Nginx(port, tls=False)


def project_in(folder: Path) -> Path:
    """Return a link to the project. Its own path may have a space, which ends a word of nginx's configuration."""
    link = folder / "project"
    if not link.is_symlink():
        link.symlink_to(PROJECT)
    return link


def _replaced(path: Path, words: Mapping[str, str]) -> str:
    text = path.read_text()
    for there, here in words.items():
        assert there in text
        text = text.replace(there, here)
    return text


@contextmanager
def started(folder: Path, text: str, port: int) -> Iterator[None]:
    """Run nginx by the main configuration `text` until the end of the context."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    (folder / "nginx.conf").write_text(text.replace("http {\n", f"http {{\n{temporary}", 1))
    # Nginx that root starts would run its workers as nobody, who may not read a test's folder.
    user = ["-g", "user root;"] if os.getuid() == 0 else []
    assert NGINX
    command = [NGINX, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf"), *user]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 20
        while not is_listening(port):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
