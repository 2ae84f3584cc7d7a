"""Clients that wait while others come and go: each is a thread that asks again and again for what seldom comes.

A client whose broker is down for a while begins again, as often as it takes.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from bench.harness.node_requests import NoResponse
from bench.harness.sessions import PATIENCE_S, Reader, SessionConsumer, ShareConsumer
from bench.harness.tools import ToolFailed
from confluent_kafka import Consumer

Make = Callable[[], Reader]
_AGAIN_S: Final = 0.2


class WaitingClients:
    """Readers, each in a thread of its own, until `close`. `check` raises what made one of them stop."""

    def __init__(self, makes: Iterable[Make]) -> None:
        self._stopping = threading.Event()
        self._problems: list[Exception] = []
        self._fetches = 0
        self._threads = [threading.Thread(target=self._run, args=(make,), daemon=True) for make in makes]
        for thread in self._threads:
            thread.start()

    @property
    def fetches(self) -> int:
        """How often readers have waited for an answer."""
        return self._fetches

    def check(self) -> None:
        if self._problems:
            raise self._problems[0]

    def close(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _run(self, make: Make) -> None:
        try:
            last_good = time.monotonic()
            while not self._stopping.is_set():
                try:
                    reader = make()
                    try:
                        while not self._stopping.is_set():
                            reader.fetch()
                            last_good = time.monotonic()
                            self._fetches += 1
                    finally:
                        with suppress(OSError, NoResponse):
                            reader.close()
                except (OSError, NoResponse, ToolFailed):
                    if time.monotonic() - last_good > PATIENCE_S:
                        raise
                    self._stopping.wait(_AGAIN_S)
        except Exception as problem:  # noqa: BLE001 (handed to the test, by `check`)
            self._problems.append(problem)


def session(port: int, topics: Mapping[str, int]) -> Make:
    """A consumer that is assigned to partitions which one node leads, with a fetch session."""
    return lambda: SessionConsumer(port, topics)


def shared(port: int, group: str, topics: Mapping[str, int]) -> Make:
    """The member of a share group on a cluster of one node."""
    return lambda: ShareConsumer(port, group, topics)


def subscribed(servers: str, group: str, topic: str, **settings: Any) -> Make:
    """librdkafka's consumer, which fetches without sessions."""
    return lambda: _Subscribed(servers, group, topic, settings)


_POLL_S: Final = 0.5


class _Subscribed:
    def __init__(self, servers: str, group: str, topic: str, settings: dict[str, Any]) -> None:
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": group, **settings})
        self._consumer.subscribe([topic])

    def fetch(self) -> list[bytes]:
        return [each.value() or b"" for each in self._consumer.consume(100, _POLL_S)]

    def close(self) -> None:
        self._consumer.close()
