"""Parses the addresses of a cluster: `host:port`."""

from typing import Final, NamedTuple

DEFAULT_PORT: Final = 9092


class InvalidAddress(ValueError):
    """The text is not a host and a port."""


class Address(NamedTuple):
    """A host and a port to connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Parse `host:port,host:port`. A port is optional; an IPv6 address needs brackets."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InvalidAddress("no address given: pass host:port, such as localhost:9092")
    return tuple(_parse(part) for part in parts)


def _parse(text: str) -> Address:
    # Users paste listeners, which begin with their protocol.
    bare = text.rpartition("://")[2]
    if bare.startswith("["):
        host, bracket, rest = bare[1:].partition("]")
        valid, port = bool(bracket) and (not rest or rest.startswith(":")), rest[1:]
    else:
        host, _, port = bare.partition(":")
        valid = True
    if not valid or not host or not (port or "0").isdecimal() or int(port or 0) > 65535:
        raise InvalidAddress(f"{text!r} is not an address: write host:port, such as localhost:9092")
    return Address(host, int(port) if port else DEFAULT_PORT)
