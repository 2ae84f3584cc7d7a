"""What can be done with what, and whoever decides whether it may be."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol


class Operation(IntEnum):
    """What is done, as rules and answers number it."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Kind(IntEnum):
    """What it is done with."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one cluster that there is."""

SUPPORTED: Final[dict[Kind, tuple[Operation, ...]]] = {
    Kind.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Kind.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Kind.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.ALTER,
        Operation.IDEMPOTENT_WRITE,
        Operation.DESCRIBE,
    ),
}
"""The operations that answers tell of (KIP-430), for each kind that they tell of."""


class Action(NamedTuple):
    """One thing that somebody wants to do."""

    operation: Operation
    kind: Kind
    name: str


class Who(Protocol):
    """Whoever wants to do it: a principal such as `User:alice`, and the address that it comes from."""

    @property
    def principal(self) -> str: ...

    @property
    def address(self) -> str: ...


class Authorizer(Protocol):
    """Decides what may be done. A node without one lets everyone do everything, and asks nobody."""

    def authorize(self, who: Who, actions: Sequence[Action]) -> list[bool]:
        """Whether each of the actions may be done."""
        ...

    def authorize_any(self, who: Who, operation: Operation, kind: Kind) -> bool:
        """Whether there can be anything of a kind with which it may be done."""
        ...
