"""nginx before a web server, configured by docs/operating/nginx.conf."""

import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from devnet.devchain import PROJECT
from devnet.ports import free_port

NGINX, OPENSSL = shutil.which("nginx"), shutil.which("openssl")
# This context accepts any certificate. It is shared, because each new one would read the system's certificates.
TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE


@contextmanager
def running_nginx(
    folder: Path, behind: int, connections: int = 64, changed: Iterable[tuple[str, str]] = ()
) -> Iterator[int]:
    """Run nginx before the service on port `behind`, and yield nginx's port. `changed` replaces words of the
    configuration.
    """
    port = free_port()
    subject = ("-subj", "/CN=batch-queries.example.org", "-keyout", str(folder / "key"), "-out", str(folder / "pem"))
    assert NGINX
    assert OPENSSL
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject], check=True, capture_output=True
    )
    text = (PROJECT / "docs" / "operating" / "nginx.conf").read_text()
    for there, here in {
        "    listen [::]:443 ssl;\n": "",
        "    listen [::]:80;\n": "",
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "listen 80": f"listen 127.0.0.1:{free_port()}",
        "127.0.0.1:8000": f"127.0.0.1:{behind}",
        "/etc/ssl/private/batch-queries.example.org.key": str(folder / "key"),
        "/etc/ssl/batch-queries.example.org.pem": str(folder / "pem"),
        "/var/log/nginx": str(folder),
        **dict(changed),
    }.items():
        assert there in text
        text = text.replace(there, here)
    (folder / "service.conf").write_text(text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; events {{ worker_connections {connections}; }}\nhttp {{\ngzip on;\n"
        # Debian's configuration allows all of these.
        "ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3; ssl_ciphers DEFAULT:@SECLEVEL=0;\n"
        + "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
        + f"include {folder}/service.conf;\n}}\n"
    )
    # Nginx that root starts would run its workers as nobody, who may not read a test's folder.
    user = ["-g", "user root;"] if os.getuid() == 0 else []
    command = [NGINX, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf"), *user]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 20
        while not is_listening(port):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
