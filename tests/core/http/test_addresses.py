from ipaddress import ip_address

import pytest

from tools_app.core.http.addresses import block_reason, parse_networks

REFUSED = {
    "this network": ["0.0.0.0", "0.1.2.3"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fdff::1"],
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "link-local": ["169.254.0.1", "169.254.169.254", "fe80::1", "febf::1"],
    "carrier": ["100.64.0.1", "100.100.100.200", "100.127.255.255"],
    "metadata": ["168.63.129.16", "169.254.169.254"],
    "protocol": ["192.0.0.1", "192.0.0.192", "2001:1::1", "2001:10::1", "2001:20::1"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    "6to4": ["2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:808:808::1", "192.88.99.1"],
    "benchmarks": ["198.18.0.1", "198.19.255.255"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.1", "255.255.255.255"],
    "unspecified": ["::"],
    "IPv4-compatible": ["::127.0.0.1", "::8.8.8.8"],
    "IPv4-mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8"],
    "NAT64": ["64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::a00:1", "64:ff9b:1:ffff::1"],
    "Teredo": ["2001::1", "2001:0:7f00:1::1"],
    "retired": ["3ffe::1"],
    "site-local": ["fec0::1", "feff::1"],
    "ISATAP": ["2a00:1450::5efe:a00:1", "2a00:1450::200:5efe:808:808"],
    "globally routable": ["100::1", "1::1", "5f00::1", "4000::1", "e000::1"],
}

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "11.0.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "126.255.255.255",
    "128.0.0.1",
    "168.63.129.15",
    "172.15.255.255",
    "172.32.0.1",
    "192.0.1.1",
    "192.167.255.255",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "2001:4860:4860::8888",
    "2003::1",
]


@pytest.mark.parametrize(("reason", "address"), [(reason, text) for reason, texts in REFUSED.items() for text in texts])
def test_an_address_that_is_not_plainly_public_is_refused_with_its_reason(reason: str, address: str) -> None:
    assert reason in block_reason(ip_address(address), ())


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_called(address: str) -> None:
    assert block_reason(ip_address(address), ()) == ""


@pytest.mark.parametrize("address", sorted({text for texts in REFUSED.values() for text in texts}))
def test_an_allowed_network_opens_any_address_in_it(address: str) -> None:
    assert block_reason(ip_address(address), parse_networks([address])) == ""


@pytest.mark.parametrize("address", ["::ffff:10.0.0.1", "::10.0.0.1", "2002:a00:1::", "64:ff9b::a00:1"])
def test_an_allowed_ipv4_network_does_not_open_the_ipv6_addresses_that_embed_it(address: str) -> None:
    assert block_reason(ip_address(address), parse_networks(["10.0.0.0/8"]))


def test_an_allowed_network_opens_nothing_beside_it() -> None:
    allowed = parse_networks(["10.1.0.0/16"])

    assert block_reason(ip_address("10.1.2.3"), allowed) == ""
    assert block_reason(ip_address("10.2.0.1"), allowed)


def test_a_network_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="garden"):
        parse_networks(["garden"])
