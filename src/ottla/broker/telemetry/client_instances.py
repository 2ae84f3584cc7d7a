"""The clients that push metrics to this broker: the metrics that they are to push, and when they may send requests.

An instance is dropped when its first connection closes, after a time without requests, or when there are too many. When
subscriptions change, each client gets new ones with its next request.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from ottla.broker.telemetry.subscriptions import (
    RequestedMetrics,
    Subscription,
    combine_subscriptions,
    read_subscriptions,
)
from ottla.metadata.image.image import Image
from ottla.protocol.errors import (
    ApiError,
    InvalidRequest,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.types import ZERO_UUID

MAX_INSTANCES: Final = 16_384
SILENCE_MS: Final = 60_000
"""The time without requests after which an instance is dropped; three intervals if that is longer."""
_RESERVED: Final = frozenset({ZERO_UUID, (1).to_bytes(16, "big")})

Attributes = Mapping[str, str | None]


class ClientInstance:
    """The state of one client that pushes metrics."""

    __slots__ = (
        "attributes",
        "connection",
        "error",
        "id",
        "is_terminating",
        "last_get_ms",
        "last_push_ms",
        "requested",
        "seen_ms",
        "subscription_id",
        "version",
    )

    def __init__(
        self,
        instance_id: bytes,
        attributes: Attributes,
        requested: RequestedMetrics,
        version: int,
        connection: Hashable,
    ) -> None:
        self.id = instance_id
        self.attributes = attributes
        self.requested = requested
        self.subscription_id = requested.id_for(instance_id)
        self.version = version
        self.connection = connection
        self.last_get_ms = 0
        self.last_push_ms = 0
        self.seen_ms = 0
        self.is_terminating = False
        self.error: type[ApiError] | None = None
        """The error of its last push."""

    def expires_at_ms(self) -> int:
        """Return when the instance is dropped unless it sends another request."""
        return self.seen_ms + max(SILENCE_MS, 3 * self.requested.interval_ms)

    def check_get(self, now_ms: int) -> None:
        """Raise if the client asks before its interval is over, unless its last push requires that."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) >= self.requested.interval_ms:
            self.last_get_ms = now_ms
        elif self.error not in (UnknownSubscriptionId, UnsupportedCompressionType):
            raise ThrottlingQuotaExceeded("the client asks for its subscription before the push interval is over")

    def check_push(
        self, subscription_id: int, codec: int, size_bytes: int, now_ms: int, *, is_last: bool, max_bytes: int
    ) -> None:
        """Raise unless the client may push this now; check in Kafka's order."""
        if self.is_terminating:
            raise InvalidRequest("the client has announced its last push already")
        # The first push after a subscription may be early: clients vary their first interval.
        if self.last_get_ms > self.last_push_ms or now_ms - self.last_push_ms >= self.requested.interval_ms:
            self.last_push_ms = now_ms
        elif not is_last:
            raise ThrottlingQuotaExceeded("the client pushes before the push interval is over")
        if subscription_id != self.subscription_id:
            raise UnknownSubscriptionId(
                f"the client pushes for subscription {subscription_id}, the current one is {self.subscription_id}"
            )
        if codec not in _CODECS:
            raise UnsupportedCompressionType(f"compression type {codec} is not supported")
        if size_bytes > max_bytes:
            raise TelemetryTooLarge(f"the push has {size_bytes} bytes, the limit is {max_bytes}")


_CODECS: Final = frozenset(int(codec) for codec in Compression)


class ClientInstances:
    """All clients that push metrics to this broker."""

    def __init__(self, new_id: Callable[[], bytes]) -> None:
        self._new_id = new_id
        self._instances: dict[bytes, ClientInstance] = {}
        """By instance id, least recently active first."""
        self._of_connection: dict[Hashable, bytes] = {}
        self._configs: object = None
        self._subscriptions: Sequence[Subscription] = ()
        self._version = 0

    def __len__(self) -> int:
        return len(self._instances)

    def get_for_subscription(
        self, instance_id: bytes, attributes: Attributes, connection: Hashable, image: Image, now_ms: int
    ) -> ClientInstance:
        """Return the instance that asks for its subscription, with a new id if it has none; raise if it is early."""
        while instance_id == ZERO_UUID:
            new_id = self._new_id()
            instance_id = new_id if new_id not in self._instances else ZERO_UUID
        instance = self._instance(instance_id, attributes, connection, image, now_ms)
        instance.check_get(now_ms)
        instance.error = None
        return instance

    def get_for_push(
        self, instance_id: bytes, attributes: Attributes, connection: Hashable, image: Image, now_ms: int
    ) -> ClientInstance:
        """Return the instance that pushes. Only its id is checked here."""
        if instance_id in _RESERVED:
            raise InvalidRequest("the client has no instance id")
        return self._instance(instance_id, attributes, connection, image, now_ms)

    def forget(self, connection: Hashable) -> None:
        """Drop the instance of a connection that has closed."""
        instance_id = self._of_connection.pop(connection, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)

    def _instance(
        self, instance_id: bytes, attributes: Attributes, connection: Hashable, image: Image, now_ms: int
    ) -> ClientInstance:
        self._update_subscriptions(image)
        instance = self._instances.pop(instance_id, None)
        if instance is not None and instance.expires_at_ms() <= now_ms:
            self._of_connection.pop(instance.connection, None)
            instance = None
        if instance is None or instance.version < self._version:
            if instance is not None:
                attributes = instance.attributes
            attributes = {"client_instance_id": format_instance_id(instance_id), **attributes}
            requested = combine_subscriptions(self._subscriptions, attributes)
            instance = ClientInstance(instance_id, attributes, requested, self._version, connection)
            self._of_connection[connection] = instance_id
        self._instances[instance_id] = instance
        instance.seen_ms = now_ms
        while len(self._instances) > MAX_INSTANCES:
            dropped = self._instances.pop(next(iter(self._instances)))
            self._of_connection.pop(dropped.connection, None)
        return instance

    def _update_subscriptions(self, image: Image) -> None:
        """Read the subscriptions of an image if they may have changed; images share what did not change."""
        if image.configs is self._configs:
            return
        self._configs = image.configs
        subscriptions = sorted(read_subscriptions(image))
        if subscriptions != self._subscriptions:
            self._subscriptions = subscriptions
            self._version += 1


def format_instance_id(instance_id: bytes) -> str:
    """Return an id as Kafka prints it."""
    return urlsafe_b64encode(instance_id).decode().rstrip("=")
