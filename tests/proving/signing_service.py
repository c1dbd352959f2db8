"""Services that hold a signer's key: anvil itself, behind nginx with TLS, or one that misbehaves."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rlp
from eth_account import Account
from eth_utils.crypto import keccak

from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from devnet.ports import free_port
from tests.chains.lying_node import ask, error, lying_node, result
from tests.serving.nginx import OPENSSL, started
from tests.users import SIGNER, SIGNER_KEY

TOKEN = "a-token-of-the-service"
_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def name_service(settings: Any, url: str, *files: str) -> None:
    """Let the signer of the chains file be signed for by the service at the URL. `files` are lines of its table."""
    text = settings.CHAINS_FILE.read_text()
    assert 'key_file = "signer.key"' in text
    lines = "\n".join([f'address = "{SIGNER}"', f'url = "{url}"', *files])
    settings.CHAINS_FILE.write_text(text.replace('key_file = "signer.key"', lines))
    forget_chains()


@contextmanager
def behind_tls(chain: DevChain, folder: Path) -> Iterator[str]:
    """Run nginx before the chain's node. It demands a client certificate and a token. Yield its URL.

    The files `server.pem`, `client.pem`, `client.key` and `token` are made in the folder.
    """
    port = free_port()
    assert OPENSSL
    for name in ("server", "client"):
        files = ("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem"))
        subject = ("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1")
        command = [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *subject]
        subprocess.run(command, check=True, capture_output=True)
    (folder / "token").write_text(f"{TOKEN}\n")
    with started(
        folder,
        f"""
daemon off; pid {folder}/pid; events {{ worker_connections 64; }}
http {{
access_log {folder}/access.log; client_max_body_size 1m;
server {{
    listen 127.0.0.1:{port} ssl; ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.key;
    ssl_client_certificate {folder}/client.pem; ssl_verify_client on;
    location / {{
        if ($http_authorization != "Bearer {TOKEN}") {{ return 401; }}
        rewrite ^ / break;
        proxy_pass {chain.url};
    }}
}}
}}
""",
        port,
    ):
        yield f"https://127.0.0.1:{port}"


def encrypted(key: str) -> str:
    """Return a private key in PEM, encrypted with a password."""
    assert OPENSSL
    command = [OPENSSL, "pkcs8", "-topk8", "-passout", "pass:a-password"]
    return subprocess.run(command, input=key, text=True, check=True, capture_output=True).stdout


def signed(fields: dict[str, Any], key: str = SIGNER_KEY, **changed: Any) -> bytes:
    """Return the signed transaction of a request's fields, some of them changed."""
    wanted = {name: value for name, value in {**fields, **changed}.items() if name != "from"}
    return bytes(Account.sign_transaction(wanted, key).raw_transaction)


def with_signature(raw: bytes, change: Callable[[int, int, int], tuple[int, int, int]]) -> bytes:
    """Return a transaction with another signature: parity, r and s are changed."""
    *items, parity, r, s = rlp.decode(raw[1:])
    numbers = change(*(int.from_bytes(number, "big") for number in (parity, r, s)))
    encoded: bytes = rlp.encode([*items, *numbers])
    return raw[:1] + encoded


def signature_of(raw: bytes) -> tuple[int, int, int]:
    parity, r, s = (int.from_bytes(number, "big") for number in rlp.decode(raw[1:])[-3:])
    return parity, r, s


def high_s(raw: bytes) -> bytes:
    """Return the transaction with the other s of the same signature, which nodes refuse (EIP-2)."""
    other = with_signature(raw, lambda parity, r, s: (1 - parity, r, _ORDER - s))
    assert keccak(other) != keccak(raw)
    return other


@contextmanager
def service_of(sign: Callable[[dict[str, Any]], Any]) -> Iterator[str]:
    """Serve `eth_signTransaction` by a function of its fields. It returns bytes, or a whole answer. Yield the URL."""

    def answer(body: Any) -> Any:
        assert body["method"] == "eth_signTransaction"
        answered = sign(body["params"][0])
        return result(body, f"0x{answered.hex()}") if isinstance(answered, bytes) else answered

    with lying_node(answer) as url:
        yield url


def refusing(_: Any) -> Any:
    """Return the answer of a service whose rules forbid the transaction."""
    return error({"id": 1}, -32011, "a sentence with secrets of the service")


def broadcasting(chain: DevChain, then: Callable[[bytes], Any]) -> Callable[[dict[str, Any]], Any]:
    """Return a service's function that signs and broadcasts by itself. It answers what `then` returns."""

    def sign(fields: dict[str, Any]) -> Any:
        raw = signed(fields)
        body = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendRawTransaction", "params": [f"0x{raw.hex()}"]}
        ask(chain.url, body)
        return then(raw)

    return sign
