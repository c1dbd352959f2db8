"""Sign in and manage keys over HTTP, as programs do."""

import hashlib
from datetime import timedelta
from typing import Any

from django.test import Client

from accounts.models import ApiKey, User
from tests.factories import client_of

MAX_KEYS = 20
OVERLAPS = {timedelta(): "now", timedelta(hours=1): "1h", timedelta(days=1): "1d", timedelta(days=7): "7d"}


class Refused(Exception):
    """The service answered a request with an error."""

    def __init__(self, answer: Any) -> None:
        is_json = answer.headers["Content-Type"] == "application/json"
        content = answer.json() if is_json else {"code": str(answer.status_code), "error": ""}
        self.code, self.sentence = str(content["code"]), str(content["error"])
        super().__init__(self.code, self.sentence)
        self.status = answer.status_code
        self.retry_after = int(wait) if (wait := answer.headers.get("Retry-After")) else None


def ask(client: Client, path: str, body: object) -> Any:
    answer = client.post(path, body, content_type="application/json", headers={"accept": "application/json"})
    if answer.status_code >= 400:
        raise Refused(answer)
    return answer.json()


def start(address: str, chain_id: int, peer: str = "192.0.2.1") -> str:
    """Return the message to sign. Raise `Refused` if the service refuses."""
    body = {"address": address, "chainId": chain_id}
    return str(ask(Client(REMOTE_ADDR=peer or "192.0.2.1"), "/sign-in/message", body)["message"])


def finish(message: str, signature: str) -> User:
    """Return the user who signed in. Raise `Refused` if the service refuses."""
    client = Client()
    ask(client, "/sign-in/verify", {"message": message, "signature": signature})
    return User.objects.get(pk=client.session["_auth_user_id"])


def issue(user: User, name: str) -> ApiKey:
    """Issue a key. Raise `Refused` if the service refuses."""
    return ApiKey.objects.get(pk=ask(client_of(user.address, user.chain_id), "/dashboard/keys", {"name": name})["id"])


def rotate(key: ApiKey, name: str, overlap: timedelta) -> ApiKey:
    made = _of(key, "rotate", {"name": name, "overlap": OVERLAPS[overlap]})
    key.refresh_from_db()
    return ApiKey.objects.get(pk=made["id"])


def revoke(key: ApiKey) -> None:
    _of(key, "revoke", {})
    key.refresh_from_db()


def reveal(key: ApiKey) -> str:
    return str(_of(key, "reveal", {})["apiKey"])


def authenticate(raw: str) -> ApiKey | None:
    """Return the key if the API accepts it."""
    answer = Client().get("/batch-queries", headers={"api-key": raw})
    assert answer.status_code in {200, 401}
    key_hash = hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()
    return ApiKey.objects.get(key_hash=key_hash) if answer.status_code == 200 else None


def _of(key: ApiKey, act: str, body: dict[str, str]) -> Any:
    return ask(client_of(key.user.address, key.user.chain_id), f"/dashboard/keys/{key.pk}/{act}", body)
