"""Allowed targets of webhooks. The refused addresses may belong to an operator's network."""

from ipaddress import ip_address, ip_network

import pytest
from environs import ValidationError

from config.settings import _networks
from queries import webhook_targets
from queries.webhook_targets import NotAllowed, target

PUBLIC = ["8.8.8.8", "1.1.1.1", "168.63.129.15", "2606:4700:4700::1111", "2a00:1450:4001::1", "64:ff9b::808:808"]
NOT_PUBLIC = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.1.2.3"),
    *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.1.1"),
    *("198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    "168.63.129.16",  # used by Azure's virtual machines
    *("::", "::1", "::127.0.0.1", "::8.8.8.8", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254"),
    *("ff02::1", "100::1", "2001:db8::1", "3fff::1", "5f00::1", "4000::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"),  # IPv4-mapped
    *("2002:7f00:1::", "2002:a00:1::1"),  # 6to4
    "2001:0:5ef5:79fd:0:59d:a0e5:b13b",  # Teredo
    *("64:ff9b::127.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::1"),  # NAT64
]


def test_public_addresses_are_sent_to_and_no_others():
    assert [address for address in [*PUBLIC, *NOT_PUBLIC] if webhook_targets.is_allowed(ip_address(address))] == PUBLIC


def test_no_address_that_python_takes_for_private_is_public():
    """Test the first and last address of each private network in Python's list."""
    for version in (4, 6):
        constants = __import__("ipaddress").__dict__[f"_IPv{version}Constants"]
        for network in [*constants._private_networks, constants._multicast_network, constants._linklocal_network]:
            assert not webhook_targets._is_public(network[0]), network
            assert not webhook_targets._is_public(network[-1]), network


def test_the_operator_allows_and_refuses_networks(settings):
    settings.WEBHOOK_ALLOW = [ip_network("10.1.0.0/16"), ip_network("fd00::/8")]
    settings.WEBHOOK_REFUSE = [ip_network("8.8.8.0/24"), ip_network("10.1.2.0/24")]
    judged = {
        address: webhook_targets.is_allowed(ip_address(address))
        for address in ("10.1.0.1", "::ffff:10.1.0.1", "64:ff9b::a01:1", "fd00::1", "10.2.0.1", "8.8.4.4")
    }
    assert judged == dict.fromkeys(judged, True) | {"10.2.0.1": False}
    for refused in ("8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "10.1.2.3"):
        assert not webhook_targets.is_allowed(ip_address(refused))


@pytest.mark.parametrize(
    ("url", "receiver"),
    [
        ("https://hooks.example.org", "hooks.example.org:443"),
        ("HTTPS://Hooks.Example.org:443/a/b?token=%20x&y=[1]", "hooks.example.org:443"),
        ("https://xn--bcher-kva.example/ü".replace("ü", "%C3%BC"), "xn--bcher-kva.example:443"),
        ("https://a_b.example.org?x", "a_b.example.org:443"),
        ("https://8.8.8.8/", "8.8.8.8:443"),
        ("https://[2606:4700:4700::1111]/", "[2606:4700:4700::1111]:443"),
    ],
)
def test_urls_of_public_hosts_are_taken(url, receiver):
    assert target(url).receiver == receiver


ODD_URLS = [
    *("", "x", "ftp://example.org/", "//example.org", "https://", "https:///path", "file:///etc/passwd"),
    *("http://example.org/", "https://example.org:80/", "https://example.org:8443/", "https://example.org:0/"),
    *("https://example.org:65536/", "https://example.org:/", "https://example.org:443:443/"),
    *("https://user@example.org/", "https://user:password@example.org/", "https://example.org@127.0.0.1/"),
    *("https://example.org#fragment", "https://example.org/#x", "https://example.org\\@127.0.0.1/"),
    *("https://exa mple.org/", "https://example.org/\n", "https://example.org/\x00", "https://example.org/ü"),
    *("https://bücher.example/", "https://example\uff0eorg/", "https://\uff11\uff12\uff17.0.0.1/"),
    *("https://localhost/", "https://intranet/", "https://example.org./", "https://.example.org/"),
    *("https://example..org/", "https://-a.example.org/", f"https://{'a' * 64}.org/", f"https://{'a.' * 130}org/"),
    *("https://127.0.0.1/", "https://127.1/", "https://0x7f.1/", "https://2130706433/", "https://0x7f000001/"),
    *("https://017700000001/", "https://0177.0.0.1/", "https://127.0.0.1./", "https://0/", "https://0x/"),
    *("https://8.8.8.8./", "https://08.8.8.8/", "https://8.8.2056/", "https://134744072/", "https://8.8.8.256/"),
    *("https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://[::127.0.0.1]/"),
    *("https://[64:ff9b::7f00:1]/", "https://[fe80::1%25eth0]/", "https://[2606:4700:4700::1111/"),
    *("https://169.254.169.254/latest/meta-data", "https://[fd00:ec2::254]/", "https://100.100.100.200/"),
    f"https://example.org/{'a' * 2048}",
]


@pytest.mark.parametrize("url", ODD_URLS)
def test_no_other_url_is(url):
    with pytest.raises(NotAllowed) as refused:
        target(url)
    # The message ends here, so it repeats no part of the URL.
    assert str(refused.value).endswith(".")
    assert "password" not in str(refused.value).replace("user name, password", "")
    assert "meta-data" not in str(refused.value)


def test_targets_that_the_operator_allows_may_use_http_and_any_port(settings):
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8"), "receiver", "hooks.example.org"]
    for url in ("http://127.0.0.1:8000/x", "http://receiver:9000", "http://Hooks.example.org/", "https://127.0.0.1"):
        assert target(url)
    # An allowed network allows no other names and no other spellings.
    for url in ("http://localhost:8000", "http://127.1:8000", "http://other.example.org/", "http://10.0.0.1/"):
        with pytest.raises(NotAllowed):
            target(url)


@pytest.mark.parametrize("value", ["10.0.0.1/8", "http://x", "a b", "127.1", "*", "x:80"])
def test_a_setting_that_is_not_understood_stops_the_start(value):
    with pytest.raises(ValidationError, match="Must be networks"):
        _networks(value, names=True)


def test_settings_are_networks_and_names():
    networks = _networks("127.0.0.0/8, ::1, Receiver, a-b.example", names=True)
    assert networks == [ip_network("127.0.0.0/8"), ip_network("::1/128"), "receiver", "a-b.example"]
    with pytest.raises(ValidationError):
        _networks("receiver")
