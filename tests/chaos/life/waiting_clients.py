"""Clients that wait for records during the whole run, each in a thread that fetches repeatedly.

A client whose broker is down reconnects until it succeeds.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from bench.harness.node_requests import NoResponse
from bench.harness.sessions import TIMEOUT_S, Reader, SessionConsumer, ShareConsumer
from bench.harness.tools import ToolFailed
from confluent_kafka import Consumer

CreateReader = Callable[[], Reader]
_RETRY_S: Final = 0.2


class WaitingClients:
    """Readers that run in their own threads until `close`. `check` raises the exception that stopped one of them."""

    def __init__(self, create_readers: Iterable[CreateReader]) -> None:
        self._stopping = threading.Event()
        self._problems: list[Exception] = []
        self._fetches = 0
        self._threads = [
            threading.Thread(target=self._run, args=(create_reader,), daemon=True) for create_reader in create_readers
        ]
        for thread in self._threads:
            thread.start()

    @property
    def fetches(self) -> int:
        """The number of fetches so far."""
        return self._fetches

    def check(self) -> None:
        if self._problems:
            raise self._problems[0]

    def close(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def _run(self, create_reader: CreateReader) -> None:
        try:
            last_success = time.monotonic()
            while not self._stopping.is_set():
                try:
                    reader = create_reader()
                    try:
                        while not self._stopping.is_set():
                            reader.fetch()
                            last_success = time.monotonic()
                            self._fetches += 1
                    finally:
                        with suppress(OSError, NoResponse):
                            reader.close()
                except (OSError, NoResponse, ToolFailed):
                    if time.monotonic() - last_success > TIMEOUT_S:
                        raise
                    self._stopping.wait(_RETRY_S)
        except Exception as problem:  # noqa: BLE001 (`check` raises it)
            self._problems.append(problem)


def session_consumer(port: int, topics: Mapping[str, int]) -> CreateReader:
    """Create a consumer with a fetch session for all partitions of some topics, which one node leads."""
    return lambda: SessionConsumer(port, topics)


def share_consumer(port: int, group: str, topics: Mapping[str, int]) -> CreateReader:
    """Create the member of a share group on a cluster of one node."""
    return lambda: ShareConsumer(port, group, topics)


def subscribed_consumer(servers: str, group: str, topic: str, **settings: Any) -> CreateReader:
    """Create a librdkafka consumer, which fetches without sessions."""
    return lambda: _SubscribedConsumer(servers, group, topic, settings)


_POLL_S: Final = 0.5


class _SubscribedConsumer:
    def __init__(self, servers: str, group: str, topic: str, settings: dict[str, Any]) -> None:
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": group, **settings})
        self._consumer.subscribe([topic])

    def fetch(self) -> list[bytes]:
        return [message.value() or b"" for message in self._consumer.consume(100, _POLL_S)]

    def close(self) -> None:
        self._consumer.close()
