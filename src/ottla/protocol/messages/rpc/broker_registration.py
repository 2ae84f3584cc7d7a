"""BrokerRegistration (key 62): a broker registers with the controller when it starts.

v1 broker in migration from ZooKeeper (KIP-866) · v2 log directories (KIP-858) · v3 broker epoch before a clean
shutdown (KIP-966) · v4 a supported feature may start at level 0.
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Int64, UInt16, Uuid


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


@request(key=ApiKey.BROKER_REGISTRATION, versions="0-4", flexible="0+")
class BrokerRegistrationRequest:
    broker_id: Int32 = since("0+", default=0)
    cluster_id: str = since("0+", default="")
    incarnation_id: Uuid = since("0+", default=ZERO_UUID)
    listeners: list[Listener] = since("0+", factory=list)
    features: list[Feature] = since("0+", factory=list)
    rack: str | None = since("0+", default="")
    is_migrating_zk_broker: bool = since("1+", default=False)
    log_dirs: list[Uuid] = since("2+", factory=list)
    previous_broker_epoch: Int64 = since("3+", default=-1)


@response(key=ApiKey.BROKER_REGISTRATION, versions="0-4", flexible="0+")
class BrokerRegistrationResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    broker_epoch: Int64 = since("0+", default=-1)
