"""Probes of ports where nodes listen or have stopped."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from bench.harness.ports import free_port

from ottla.node.port_probe import is_refused


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        made.listen()
        yield made


def test_a_closed_port_is_refused() -> None:
    assert asyncio.run(is_refused("127.0.0.1", free_port())) is True


def test_an_open_port_is_not_refused(listening: socket.socket) -> None:
    assert asyncio.run(is_refused(*listening.getsockname())) is False


def test_a_dying_process_counts_as_refused(listening: socket.socket) -> None:
    """Its connections close a moment before its listening socket does."""

    async def scenario() -> bool | None:
        asyncio.get_running_loop().call_later(0.01, listening.close)
        return await is_refused(*listening.getsockname())

    assert asyncio.run(scenario()) is True


def test_a_node_that_closes_each_connection_is_alive() -> None:
    async def scenario() -> bool | None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            return await is_refused(*server.sockets[0].getsockname())

    assert asyncio.run(scenario()) is False


def test_a_probe_without_answer_proves_nothing() -> None:
    assert asyncio.run(is_refused("no-such-host.invalid", 1)) is None
