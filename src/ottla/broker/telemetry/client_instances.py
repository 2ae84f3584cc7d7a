"""The clients that push metrics to this broker: what each is asked for, and when it may ask and push again.

An instance is forgotten with the connection that it first came over, after a time of silence, or when there are too
many. When subscriptions change, everyone begins anew with its next request.
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

MOST_INSTANCES: Final = 16_384
SILENCE_MS: Final = 60_000
"""After which an instance is forgotten, or after three intervals if that is longer."""
_RESERVED: Final = frozenset({ZERO_UUID, (1).to_bytes(16, "big")})

Attributes = Mapping[str, str | None]


class ClientInstance:
    """One client."""

    __slots__ = (
        "attributes",
        "connection",
        "error",
        "id",
        "is_terminating",
        "last_get_ms",
        "last_push_ms",
        "seen_ms",
        "subscription_id",
        "version",
        "wanted",
    )

    def __init__(
        self, instance_id: bytes, attributes: Attributes, wanted: RequestedMetrics, version: int, connection: Hashable
    ) -> None:
        self.id = instance_id
        self.attributes = attributes
        self.wanted = wanted
        self.subscription_id = wanted.id_for(instance_id)
        self.version = version
        self.connection = connection
        self.last_get_ms = 0
        self.last_push_ms = 0
        self.seen_ms = 0
        self.is_terminating = False
        self.error: type[ApiError] | None = None
        """What was wrong with its last push."""

    def lasts_until_ms(self) -> int:
        return self.seen_ms + max(SILENCE_MS, 3 * self.wanted.interval_ms)

    def check_get(self, now_ms: int) -> None:
        """Raise if it asks again too early; it may, if it was told that what it knows is wrong."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) >= self.wanted.interval_ms:
            self.last_get_ms = now_ms
        elif self.error not in (UnknownSubscriptionId, UnsupportedCompressionType):
            raise ThrottlingQuotaExceeded("the client asks again before its interval is over")

    def check_push(
        self, subscription_id: int, codec: int, size_bytes: int, now_ms: int, *, is_last: bool, most_bytes: int
    ) -> None:
        """Raise unless it may push this now, in the order of Kafka's checks."""
        if self.is_terminating:
            raise InvalidRequest("the client said that it was going")
        # The first push after a question may come early: clients vary their first interval.
        if self.last_get_ms > self.last_push_ms or now_ms - self.last_push_ms >= self.wanted.interval_ms:
            self.last_push_ms = now_ms
        elif not is_last:
            raise ThrottlingQuotaExceeded("the client pushes again before its interval is over")
        if subscription_id != self.subscription_id:
            raise UnknownSubscriptionId("the client pushes what it was asked for before")
        if codec not in _CODECS:
            raise UnsupportedCompressionType(f"there is no compression {codec}")
        if size_bytes > most_bytes:
            raise TelemetryTooLarge(f"{size_bytes} bytes are more than {most_bytes}")


_CODECS: Final = frozenset(int(codec) for codec in Compression)


class ClientInstances:
    """All clients that were heard of."""

    def __init__(self, new_id: Callable[[], bytes]) -> None:
        self._new_id = new_id
        self._known: dict[bytes, ClientInstance] = {}
        """The one that was silent for longest comes first."""
        self._of_connection: dict[Hashable, bytes] = {}
        self._configs: object = None
        self._subscriptions: Sequence[Subscription] = ()
        self._version = 0

    def __len__(self) -> int:
        return len(self._known)

    def asking(
        self, instance_id: bytes, attributes: Attributes, connection: Hashable, image: Image, now_ms: int
    ) -> ClientInstance:
        """The instance that asks what to push; it gets an id if it has none. Raises if it is too early."""
        while instance_id == ZERO_UUID:
            made = self._new_id()
            instance_id = made if made not in self._known else ZERO_UUID
        instance = self._instance(instance_id, attributes, connection, image, now_ms)
        instance.check_get(now_ms)
        instance.error = None
        return instance

    def pushing(
        self, instance_id: bytes, attributes: Attributes, connection: Hashable, image: Image, now_ms: int
    ) -> ClientInstance:
        """The instance that pushes; nothing of the push was checked yet but its id."""
        if instance_id in _RESERVED:
            raise InvalidRequest("the client has no instance id")
        return self._instance(instance_id, attributes, connection, image, now_ms)

    def forget(self, connection: Hashable) -> None:
        """A connection has ended."""
        instance_id = self._of_connection.pop(connection, None)
        if instance_id is not None:
            self._known.pop(instance_id, None)

    def _instance(
        self, instance_id: bytes, attributes: Attributes, connection: Hashable, image: Image, now_ms: int
    ) -> ClientInstance:
        self._look_at(image)
        known = self._known.pop(instance_id, None)
        if known is not None and known.lasts_until_ms() <= now_ms:
            self._of_connection.pop(known.connection, None)
            known = None
        if known is None or known.version < self._version:
            if known is not None:
                attributes = known.attributes
            told = {"client_instance_id": shown(instance_id), **attributes}
            known = ClientInstance(
                instance_id, told, combine_subscriptions(self._subscriptions, told), self._version, connection
            )
            self._of_connection[connection] = instance_id
        self._known[instance_id] = known
        known.seen_ms = now_ms
        while len(self._known) > MOST_INSTANCES:
            gone = self._known.pop(next(iter(self._known)))
            self._of_connection.pop(gone.connection, None)
        return known

    def _look_at(self, image: Image) -> None:
        """Notice that subscriptions changed; images share what did not."""
        if image.configs is self._configs:
            return
        self._configs = image.configs
        found = sorted(read_subscriptions(image))
        if found != self._subscriptions:
            self._subscriptions = found
            self._version += 1


def shown(instance_id: bytes) -> str:
    """An id as Kafka shows it."""
    return urlsafe_b64encode(instance_id).decode().rstrip("=")
