"""ControllerRegistration (key 70): a controller registers its endpoints and features with the active controller."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, UInt16, Uuid


@struct
class Listener:
    name: str = since("0+", default="")
    host: str = since("0+", default="")
    port: UInt16 = since("0+", default=0)
    security_protocol: Int16 = since("0+", default=0)


@struct
class Feature:
    name: str = since("0+", default="")
    min_supported_version: Int16 = since("0+", default=0)
    max_supported_version: Int16 = since("0+", default=0)


@request(key=ApiKey.CONTROLLER_REGISTRATION, versions="0", flexible="0+")
class ControllerRegistrationRequest:
    controller_id: Int32 = since("0+", default=0)
    incarnation_id: Uuid = since("0+", default=ZERO_UUID)
    zk_migration_ready: bool = since("0+", default=False)
    listeners: list[Listener] = since("0+", factory=list)
    features: list[Feature] = since("0+", factory=list)


@response(key=ApiKey.CONTROLLER_REGISTRATION, versions="0", flexible="0+")
class ControllerRegistrationResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")
