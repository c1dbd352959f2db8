import time

import pytest
from django.test import RequestFactory

from accounts.throttle import client_address


@pytest.mark.parametrize(
    ("remote", "header", "sent", "counted"),
    [
        ("192.0.2.1", "", {}, "192.0.2.1"),
        ("192.0.2.1", "", {"HTTP_X_REAL_IP": "198.51.100.7"}, "192.0.2.1"),
        ("192.0.2.1", "X-Real-IP", {"HTTP_X_REAL_IP": "198.51.100.7"}, "198.51.100.7"),
        ("192.0.2.1", "X-Forwarded-For", {"HTTP_X_FORWARDED_FOR": "forged, 203.0.113.9, 198.51.100.7"}, "198.51.100.7"),
        ("192.0.2.1", "X-Real-IP", {}, "192.0.2.1"),
        ("192.0.2.1", "X-Forwarded-For", {"HTTP_X_FORWARDED_FOR": "203.0.113.9, ,"}, "203.0.113.9"),
        ("192.0.2.1", "X-Forwarded-For", {"HTTP_X_FORWARDED_FOR": " , "}, "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "", {}, "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "", {}, "192.0.2.1"),
        ("", "", {}, ""),
    ],
)
def test_limits_count_by_the_address_that_can_be_trusted(settings, remote, header, sent, counted):
    settings.CLIENT_ADDRESS_HEADER = header
    assert client_address(RequestFactory().get("/", REMOTE_ADDR=remote, **sent)) == counted


@pytest.mark.parametrize(
    ("entry", "counted"),
    [
        ("198.51.100.7:50123", "198.51.100.7"),
        ("203.0.113.9:1, 198.51.100.7:50123", "198.51.100.7"),
        ("198.51.100.7:", "198.51.100.7"),
        ("[2001:db8:1:2:3::4]:443", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:3::4]", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("[fe80::1%25eth0]:80", "fe80::/64"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("::ffff:198.51.100.7:50123", "198.51.100.7"),
        # CloudFront-Viewer-Address
        ("2001:db8:1:2:3:4:5:6:4711", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::4:46532", "2001:db8:1:2::/64"),
        ('"198.51.100.7"', "198.51.100.7"),
        ("[::ffff:198.51.100.7]:80", "198.51.100.7"),
        ('for="[2001:db8:1:2:3::4]:4711";proto=https;by=203.0.113.43', "2001:db8:1:2::/64"),
        ('for="198.51.100.7:4711"', "198.51.100.7"),
        ("For=192.0.2.43:47011, proto=https; FOR = 198.51.100.7", "198.51.100.7"),
    ],
)
@pytest.mark.parametrize("header", ["X-Real-IP", "Forwarded", "CF-Connecting-IP"])
def test_an_address_is_read_as_proxies_write_it(settings, header, entry, counted):
    settings.CLIENT_ADDRESS_HEADER = header
    sent = {f"HTTP_{header.upper().replace('-', '_')}": entry}
    assert client_address(RequestFactory().get("/", REMOTE_ADDR="192.0.2.1", **sent)) == counted


def test_clients_whose_addresses_cannot_be_read_share_no_limit(settings, caplog):
    settings.CLIENT_ADDRESS_HEADER = "X-Client"

    def counted(entry: str) -> str:
        return client_address(RequestFactory().get("/", REMOTE_ADDR="192.0.2.1", HTTP_X_CLIENT=entry))

    entries = ["garbage", "_hidden", "unknown", "1.2.3", "[::1", "198.51.100.7:1:2", "for=", "::g", "x" * 9000]
    assert len({*map(counted, entries), "192.0.2.1", ""}) == len(entries) + 2
    assert counted("garbage") == counted(" garbage")
    assert caplog.messages == ["CLIENT_ADDRESS_HEADER: no address can be read from the header X-Client."]


def test_an_entry_that_no_proxy_writes_costs_little(settings):
    settings.CLIENT_ADDRESS_HEADER = "X-Client"
    began = time.process_time()
    for entry in ("for=" * 8000, ";" * 32_000, "1:" * 16_000):
        assert client_address(RequestFactory().get("/", HTTP_X_CLIENT=entry)).startswith("unread ")
    assert time.process_time() - began < 1
