"""The form for a new batch, as a browser posts it and reads its pages."""

import json
import re
from collections import defaultdict
from html import unescape
from typing import Any

from django.test import Client


def form(*rows: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Return a form's fields as a browser posts them. By default a row requests a balance at the latest block."""
    usual = {"source": "31337", "at": "latest", "props": ["BALANCE"]}
    data = {"destination": "31337", "sender": "service", "fee": "", "token": "a-token", **others}
    return data | {f"rows-{at}-{name}": value for at, row in enumerate(rows) for name, value in (usual | row).items()}


def post(client: Client, do: str, *rows: dict[str, Any], status: int = 200, **others: Any) -> str:
    answer = client.post("/new-batch", form(*rows, **others) | {"do": do})
    assert answer.status_code == status, answer.text
    return unescape(answer.text)


def request_of(client: Client, posted: dict[str, Any]) -> Any:
    """Return the API request that the form shows."""
    return json.loads(client.post("/new-batch", posted | {"do": "json"}).text)


def faults_in(html: str) -> list[tuple[str, str]]:
    """Return the form's errors, each with the id of its field. The page must have that field."""
    faults = re.findall(r'<li>(?:<a href="#([^"]+)">[^<]+</a>: )?(.*?)</li>', html)
    assert all(f'id="{control}"' in html for control, _ in faults if control)
    return faults


def filled(html: str) -> dict[str, list[str]]:
    """Return the filled-in form's fields as a browser would post them."""
    fields: dict[str, list[str]] = defaultdict(list)
    for field in (
        r'<input type="(?:text|hidden|datetime-local)" name="([^"]+)"(?: value="([^"]*)")?',
        r'<input type="(?:radio|checkbox)" name="([^"]+)" value="([^"]*)"[^>]* checked',
        r'<select name="([^"]+)"[^>]*>(?:(?!</select>).)*?value="([^"]*)" selected',
        r'<textarea name="([^"]+)"[^>]*>\n(.*?)</textarea>',
    ):
        for name, value in re.findall(field, html, re.DOTALL):
            fields[name].append(unescape(value))
    return fields


def values(html: str, name: str) -> list[str]:
    """Return each row's value of this text field."""
    return [value for (value,) in (texts for key, texts in filled(html).items() if key.split("-")[-1] == name)]
