"""Subscriptions to client metrics: the resources of type client-metrics, and the metrics that a client is to push."""

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
"""The default push interval. Clients without a subscription ask again after this time."""
_MEMORY_BYTES: Final = 1 << 18
_MASK_32: Final = 0xFFFF_FFFF
_SIGN_BIT: Final = 1 << 31


class Subscription(NamedTuple):
    """A client-metrics resource: prefixes of metrics, the push interval, and the attributes of its clients."""

    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, str], ...]

    def is_for(self, attributes: Mapping[str, str | None]) -> bool:
        """Return whether all expressions match the client's attributes completely."""
        return all(_matches(expression, attributes.get(name)) for name, expression in self.match)


class RequestedMetrics(NamedTuple):
    """The metrics that one client is to push."""

    metrics: tuple[str, ...]
    interval_ms: int

    def id_for(self, instance_id: bytes) -> int:
        """Return the subscription id, by which a client shows that its subscription is current."""
        description = f"[{', '.join(self.metrics)}]{self.interval_ms}"
        mixed = int.from_bytes(instance_id[:8], "big") ^ int.from_bytes(instance_id[8:], "big")
        value = (crc32c(description.encode()) ^ mixed >> 32 ^ mixed) & _MASK_32
        return value - (_SIGN_BIT << 1) if value & _SIGN_BIT else value


def read_subscriptions(image: Image) -> Sequence[Subscription]:
    """Return all subscriptions of an image."""
    return [
        Subscription(
            resource.name,
            tuple(_items(settings.get("metrics", ""))),
            int(settings.get("interval.ms", INTERVAL_MS)),
            tuple(_pair(item) for item in _items(settings.get("match", ""))),
        )
        for resource, settings in image.configs.items()
        if resource.type == ResourceType.CLIENT_METRICS and settings
    ]


def combine_subscriptions(
    subscriptions: Iterable[Subscription], attributes: Mapping[str, str | None]
) -> RequestedMetrics:
    """Combine the subscriptions that match a client; the shortest interval counts."""
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS
    for subscription in subscriptions:
        if subscription.is_for(attributes):
            metrics.update(subscription.metrics)
            interval_ms = min(interval_ms, subscription.interval_ms)
    return RequestedMetrics((EVERYTHING,) if EVERYTHING in metrics else tuple(sorted(metrics)), interval_ms)


def _items(text: str) -> list[str]:
    return [item for part in text.split(",") if (item := part.strip())]


def _pair(text: str) -> tuple[str, str]:
    name, _, expression = text.partition("=")
    return name.strip(), expression.strip()


def _matches(expression: str, value: str | None) -> bool:
    compiled = _compiled(expression)
    return value is not None and compiled is not None and compiled.fullmatch(value) is not None


@lru_cache(maxsize=256)
def _compiled(expression: str) -> Any:
    """Compile an expression with RE2; return None if RE2 lacks its syntax, which the controller does not check."""
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        logger.warning(
            "the expression %r of a client-metrics resource is not supported and matches no client: %s",
            expression,
            error,
        )
        return None
