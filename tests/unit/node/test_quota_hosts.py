"""Quotas for hosts by name, and the addresses on which they are enforced."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.metadata.image.values import quota_entity
from ottla.node.access_control import AccessControl
from ottla.node.quota_hosts import address_of
from ottla.node.settings_loader import load_settings


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("localhost", "127.0.0.1"),
        ("nobody.invalid", None),
        ("with spaces", None),
        ("10.0.0.400", None),
        ("x" * 300, None),
        ("", None),
    ],
)
def test_a_host_name_resolves_to_one_address(host: str, address: str | None) -> None:
    assert asyncio.run(address_of(host)) == address


class Limited:
    """The connection quotas of a node; host lookups run when the test says so."""

    connections: Any

    def __init__(self) -> None:
        self.spawned: list[Coroutine[Any, Any, None]] = []
        self.connections = SimpleNamespace(throttle_ms=None)
        runtime: Any = SimpleNamespace(spawn=self.spawned.append, now_ms=lambda: 0)
        self._rights = AccessControl(load_settings(None, {}), self.connections, runtime)

    def set(self, host: str, rate: float | None) -> None:
        given = None if rate is None else {"connection_creation_rate": rate}
        change = SimpleNamespace(key=quota_entity({"ip": host}), new=given)
        update: Any = SimpleNamespace(changes=SimpleNamespace(acls=[], quotas=[change]))
        self._rights.on_update(update)

    def look_up(self) -> None:
        while self.spawned:
            asyncio.run(self.spawned.pop(0))

    def is_limited(self, address: str) -> bool:
        return (
            self.connections.throttle_ms is not None
            and max(self.connections.throttle_ms(address) for _ in range(100)) > 0
        )


@pytest.mark.parametrize(("host", "address"), [("localhost", "127.0.0.1"), ("0:0::1", "::1")])
def test_a_quota_applies_to_a_host_by_name_or_address(host: str, address: str) -> None:
    node = Limited()
    node.set(host, 1.0)
    node.look_up()
    assert node.is_limited(address)
    assert not node.is_limited("10.0.0.1")
    node.set(host, None)
    node.look_up()
    assert not node.is_limited(address)


def test_a_quota_removed_during_the_lookup_stays_removed() -> None:
    node = Limited()
    node.set("localhost", 1.0)
    node.set("localhost", None)
    node.look_up()
    assert not node.is_limited("127.0.0.1")


def test_an_unresolvable_host_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    node = Limited()
    node.set("nobody.invalid", 1.0)
    node.look_up()
    assert "nobody.invalid" in caplog.text
    assert not node.is_limited("127.0.0.1")
