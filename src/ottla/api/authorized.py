"""What a client may do with a resource, as the bits that answers have for it (KIP-430): bit n is operation n.

As long as nobody restricts access, everyone may do everything that there is to do with it.
"""

from typing import Any, Final

from ottla.api.call import Call

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = range(3, 9)
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = range(9, 13)

NOT_ASKED: Final = -(1 << 31)
_TOPIC: Final = (_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
_CLUSTER: Final = (
    _CREATE,
    _ALTER,
    _DESCRIBE,
    _CLUSTER_ACTION,
    _DESCRIBE_CONFIGS,
    _ALTER_CONFIGS,
    _IDEMPOTENT_WRITE,
)
_ALL_OF_TOPIC: Final = sum(1 << operation for operation in _TOPIC)
_ALL_OF_CLUSTER: Final = sum(1 << operation for operation in _CLUSTER)


def topic_operations(call: Call[Any], topic: str) -> int:
    """What the client may do with a topic, be it there or not."""
    return _ALL_OF_TOPIC


def cluster_operations(call: Call[Any]) -> int:
    """What the client may do with the cluster."""
    return _ALL_OF_CLUSTER
