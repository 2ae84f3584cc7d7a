"""Parsing of addresses."""

import pytest

from ottla.client.addresses import Address, InvalidAddress, parse_addresses


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
        ("[::1]:19092,[::2]", [("::1", 19092), ("::2", 9092)]),
    ],
)
def test_an_address_has_a_host_and_an_optional_port(text: str, addresses: list[tuple[str, int]]) -> None:
    assert list(parse_addresses(text)) == addresses


@pytest.mark.parametrize("text", ["", ",", ":9092", "a:x", "a:70000", "a:1:2", "[::1", "[::1]9092", "a:²"])
def test_other_texts_are_rejected(text: str) -> None:
    with pytest.raises(InvalidAddress, match="localhost:9092"):
        parse_addresses(text)


def test_an_address_is_shown_as_it_was_written() -> None:
    assert [str(address) for address in (Address("a", 1), Address("::1", 2))] == ["a:1", "[::1]:2"]
