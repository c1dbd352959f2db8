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
        ("192.0.2.1", "X-Real-IP", {"HTTP_X_REAL_IP": "garbage"}, "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "", {}, "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "", {}, "192.0.2.1"),
        ("", "", {}, ""),
    ],
)
def test_limits_count_by_the_address_that_can_be_trusted(settings, remote, header, sent, counted):
    settings.CLIENT_ADDRESS_HEADER = header
    assert client_address(RequestFactory().get("/", REMOTE_ADDR=remote, **sent)) == counted
