"""Which addresses are public, however they are written. Nothing here connects anywhere."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import ToolError
from treadle.toolkit._guard import as_literal, is_public

PRIVATE = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "unspecified": ["0.0.0.0", "0.1.2.3", "::"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12:3456::1", "fec0::1"],
    "link-local": ["169.254.0.1", "fe80::1", "fe80::1%eth0"],
    "metadata": ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"],
    "carriers": ["100.64.0.1", "100.127.255.255"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.1", "255.255.255.255", "4000::1", "::2"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    "benchmarks": ["198.18.0.1", "198.19.255.255", "2001:2::1"],
    "mapped": ["::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::ffff:0:8.8.8.8"],
    "NAT64": ["64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1"],
    "6to4": ["2002:7f00:1::", "2002:808:808::1", "192.88.99.1"],
    "Teredo": ["2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"],
    "ORCHID": ["2001:10::1", "2001:20::1"],
    "discard": ["100::1"],
    "SRv6": ["5f00::1"],
}


@pytest.mark.parametrize("address", [one for group in PRIVATE.values() for one in group])
def test_an_address_of_a_special_range_is_not_public(address: str):
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "93.184.215.14", "1.1.1.1", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1",
     "126.255.255.255", "128.0.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888"],
)  # fmt: skip
def test_an_address_of_the_internet_is_public(address: str):
    assert is_public(ipaddress.ip_address(address))


@given(st.integers(0, 2**32 - 1))
def test_no_address_that_python_knows_as_special_is_public(number: int):
    address = ipaddress.IPv4Address(number)
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert not is_public(address)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_no_address_with_an_ipv4_address_inside_is_public(inner: int, rest: int):
    base = ipaddress.IPv6Address
    assert not is_public(base(0xFFFF << 32 | inner))
    assert not is_public(base(inner))
    assert not is_public(base((0x64FF9B << 96) | inner))
    assert not is_public(base((0x2002 << 112) | (inner << 80) | rest))
    assert not is_public(base((0x20010000 << 96) | (inner << 64) | rest))


@pytest.mark.parametrize(
    "spelled",
    ["127.0.0.1", "2130706433", "0x7f000001", "0x7f.1", "0X7F.0.0.0x1", "017700000001", "0177.0.0.1", "127.1", "127.0.1",
     "127.0.0.1.", "127.1."],
)  # fmt: skip
def test_every_spelling_of_an_ipv4_address_is_read_as_one(spelled: str):
    assert as_literal(spelled) == ipaddress.ip_address("127.0.0.1")


@pytest.mark.parametrize(
    "spelled", ["256.1", "1.2.3.4.5", "4294967296", "0x", "a.0x1", "site.1", "08", "1..2", "1.2.3.999"]
)
def test_what_only_looks_like_an_address_never_reaches_a_resolver(spelled: str):
    with pytest.raises(ToolError, match="no valid address"):
        as_literal(spelled)


@pytest.mark.parametrize(
    "name", ["site.example", "1.site.example", "0x7f.site", "x1", "127.0.0.1.site.example", "localhost"]
)
def test_a_name_is_no_address(name: str):
    assert as_literal(name) is None
