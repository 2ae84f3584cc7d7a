"""Which metrics a client is asked for: what the resources of type client-metrics say of clients like it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import re2

from ottla.metadata.image.image import Image
from ottla.metadata.image.values import ResourceType
from ottla.protocol.wire.crc import crc32c

logger = logging.getLogger(__name__)

EVERYTHING: Final = "*"
INTERVAL_MS: Final = 5 * 60 * 1000
"""How often clients push by default, also those that are asked for nothing: they come to see whether that changed."""
_MEMORY_BYTES: Final = 1 << 18
_MASK_32: Final = 0xFFFF_FFFF
_SIGN_BIT: Final = 1 << 31


class Subscription(NamedTuple):
    """One resource: prefixes of metrics, an interval, and the clients that it is for, by their attributes."""

    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, str], ...]

    def is_for(self, attributes: Mapping[str, str | None]) -> bool:
        """Whether a client is meant: all expressions match its attributes as a whole."""
        return all(_matches(expression, attributes.get(name)) for name, expression in self.match)


class RequestedMetrics(NamedTuple):
    """What one client is asked for."""

    metrics: tuple[str, ...]
    interval_ms: int

    def id_for(self, instance_id: bytes) -> int:
        """The number by which the client says that it has understood."""
        told = f"[{', '.join(self.metrics)}]{self.interval_ms}"
        mixed = int.from_bytes(instance_id[:8], "big") ^ int.from_bytes(instance_id[8:], "big")
        value = (crc32c(told.encode()) ^ mixed >> 32 ^ mixed) & _MASK_32
        return value - (_SIGN_BIT << 1) if value & _SIGN_BIT else value


def read_subscriptions(image: Image) -> Sequence[Subscription]:
    """All that there are."""
    return [
        Subscription(
            resource.name,
            tuple(_items(settings.get("metrics", ""))),
            int(settings.get("interval.ms", INTERVAL_MS)),
            tuple(_pair(each) for each in _items(settings.get("match", ""))),
        )
        for resource, settings in image.configs.items()
        if resource.type == ResourceType.CLIENT_METRICS and settings
    ]


def combine_subscriptions(
    subscriptions: Iterable[Subscription], attributes: Mapping[str, str | None]
) -> RequestedMetrics:
    """What all subscriptions together want of a client; the shortest interval counts."""
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS
    for each in subscriptions:
        if each.is_for(attributes):
            metrics.update(each.metrics)
            interval_ms = min(interval_ms, each.interval_ms)
    return RequestedMetrics((EVERYTHING,) if EVERYTHING in metrics else tuple(sorted(metrics)), interval_ms)


def _items(text: str) -> list[str]:
    return [item for each in text.split(",") if (item := each.strip())]


def _pair(text: str) -> tuple[str, str]:
    name, _, expression = text.partition("=")
    return name.strip(), expression.strip()


def _matches(expression: str, value: str | None) -> bool:
    compiled = _compiled(expression)
    return value is not None and compiled is not None and compiled.fullmatch(value) is not None


@lru_cache(maxsize=256)
def _compiled(expression: str) -> Any:
    """An expression that takes linear time; None if RE2 does not know it, which the controller's check does not see."""
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        logger.warning("the expression %r of a client-metrics resource matches no client: %s", expression, error)
        return None
