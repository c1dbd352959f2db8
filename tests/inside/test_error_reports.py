"""Addresses in reports of errors."""

import pytest

from config.error_reports import _redacted


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("at postgresql://user:pass@db.example:5432/name now", "at postgresql://db.example:5432/[redacted] now"),
        ("(https://node.example/v2/key)", "(https://node.example/[redacted]"),
        ("'https://node.example?key=1'", "'https://node.example/[redacted]'"),
        ("a long-secret here", "a [redacted] here"),
        ("no URL at all", "no URL at all"),
    ],
)
def test_no_url_is_more_than_its_host(text, left, settings):
    settings.METRICS_TOKEN = "long-secret"
    report = _redacted({"logentry": [text]}, {})
    assert report is not None
    assert report["logentry"] == [left]
