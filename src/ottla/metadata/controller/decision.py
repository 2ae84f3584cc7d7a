"""What the controller's decisions have in common.

A record is written in the version that `ottla.protocol.metadata_versions.version_to_write` names for the image decided
upon.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

from ottla.metadata.image.delta import Delta
from ottla.metadata.image.image import Image
from ottla.protocol.errors import InvalidRequest, PolicyViolation
from ottla.storage.state_machine.decision import Decision

__all__ = [
    "MAX_RECORDS",
    "Charge",
    "Decision",
    "Randomness",
    "apply_records",
    "decide_atomically",
    "reject_duplicate",
]

T = TypeVar("T")

MAX_RECORDS = 10_000
"""What one request of a user may write; more would not fit one batch of the log."""

Charge: TypeAlias = Callable[[int], None]
"""Counts partitions that a request makes or deletes against a quota; raises ThrottlingQuotaExceeded."""


class Randomness(Protocol):
    """What is asked of chance; `random.Random` is one."""

    def randrange(self, stop: int, /) -> int: ...


def decide_atomically(records: Sequence[object], reply: T) -> Decision[T]:
    """A decision on a user's request: one batch, which must not be too large."""
    if len(records) > MAX_RECORDS:
        raise PolicyViolation("Unable to perform excessively large batch operation.")
    return Decision(tuple(records), reply, atomic=True)


def reject_duplicate(seen: set[tuple[T, int]], topic: T, number: int) -> None:
    """Whether a request names a partition for the first time: two changes decided upon one image need not fit."""
    if (topic, number) in seen:
        raise InvalidRequest(f"Partition {number} is named more than once.")
    seen.add((topic, number))


def apply_records(image: Image, records: Sequence[object]) -> Image:
    """The image that records would make: for decisions of several steps, each of which must see the one before."""
    if not records:
        return image
    delta = Delta(image)
    for record in records:
        delta.apply(record)
    return delta.finish(offset=image.offset, epoch=image.epoch, timestamp=image.timestamp)
