"""Shared parts of the controller's decisions.

A record is written in the version that `ottla.protocol.metadata_versions.version_to_write` gives for the image.
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
"""The most records that one request of a user may write, so that they fit one batch."""

Charge: TypeAlias = Callable[[int], None]
"""Counts created or deleted partitions against the quota; raises ThrottlingQuotaExceeded."""


class Randomness(Protocol):
    """The part of `random.Random` that decisions need."""

    def randrange(self, stop: int, /) -> int: ...


def decide_atomically(records: Sequence[object], reply: T) -> Decision[T]:
    """Return a decision that is written as one batch. Raise PolicyViolation if it is too large."""
    if len(records) > MAX_RECORDS:
        raise PolicyViolation("Unable to perform excessively large batch operation.")
    return Decision(tuple(records), reply, atomic=True)


def reject_duplicate(seen: set[tuple[T, int]], topic: T, number: int) -> None:
    """Raise if a request repeats a partition: two changes that are decided on one image may not fit together."""
    if (topic, number) in seen:
        raise InvalidRequest(f"Partition {number} is named more than once.")
    seen.add((topic, number))


def apply_records(image: Image, records: Sequence[object]) -> Image:
    """Return the image after these records, for decisions of several steps."""
    if not records:
        return image
    delta = Delta(image)
    for record in records:
        delta.apply(record)
    return delta.finish(offset=image.offset, epoch=image.epoch, timestamp=image.timestamp)
