"""The marks of a table's commits: the cluster, the topic and the offsets that the table has reached.

A recreated topic has another id, and its offsets start again. So a run compares the topic's id before it reads, and
again before each commit.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.spark.tables.failures import TableError

_PREFIX: Final = "ottla."
OFFSETS: Final = "ottla.offsets"


class Marks(NamedTuple):
    """The source of a table's rows, as stored with each commit."""

    cluster: str
    topic: str
    topic_id: str
    mode: str
    """Which rows the table has: one for every record ("append"), or the last of each key ("upsert")."""
    offsets: Mapping[int, int]
    """The next offset of each partition."""
    topics: int = 1
    """The number of topics with this name in the table; accepting a recreated topic increases it."""

    def to_properties(self) -> dict[str, str]:
        """Return the marks as properties, for a snapshot's summary or a commit's metadata."""
        return {
            f"{_PREFIX}cluster-id": self.cluster,
            f"{_PREFIX}topic": self.topic,
            f"{_PREFIX}topic-id": self.topic_id,
            f"{_PREFIX}mode": self.mode,
            f"{_PREFIX}topics": str(self.topics),
            OFFSETS: json.dumps({str(number): offset for number, offset in sorted(self.offsets.items())}),
        }

    def check(self, now: "Marks", table: str) -> None:
        """Raise TableError if the cluster or the topic is not the one that the table was created from."""
        if self.cluster != now.cluster:
            raise TableError(
                f"table {table!r}: the cluster id is {now.cluster}, but the table was created from {self.cluster}; "
                f"check --bootstrap-server. {_remedies(table)}"
            )
        if self.topic_id != now.topic_id:
            raise TableError(
                f"table {table!r}: topic {now.topic!r} was recreated. The table has records of the topic with id "
                f"{self.topic_id}; the current id is {now.topic_id}. {_remedies(table)}"
            )

    def check_mode(self, mode: str, table: str) -> None:
        """Raise TableError if the last row of each key cannot be determined, as a change to upsert requires."""
        if mode == "upsert" != self.mode and self.topics > 1:
            raise TableError(
                f"table {table!r} cannot change to upsert: it has rows of {self.topics} topics named {self.topic!r}, "
                "whose offsets cannot be compared, so the last row of a key is unknown. To start over, run "
                f"`ottla table drop {table}` and `ottla table create --mode upsert`"
            )

    def advance(self, offsets: Mapping[int, int]) -> "Marks":
        return self._replace(offsets={**self.offsets, **offsets})


def from_properties(properties: Mapping[str, str]) -> Marks | None:
    """Return the marks of a commit's properties, or None if it has none."""
    if OFFSETS not in properties:
        return None
    return Marks(
        cluster=properties[f"{_PREFIX}cluster-id"],
        topic=properties[f"{_PREFIX}topic"],
        topic_id=properties[f"{_PREFIX}topic-id"],
        mode=properties[f"{_PREFIX}mode"],
        offsets={int(number): offset for number, offset in json.loads(properties[OFFSETS]).items()},
        topics=int(properties.get(f"{_PREFIX}topics", 1)),
    )


def _remedies(table: str) -> str:
    return (
        f"To keep the rows and read this topic from its beginning, run `ottla table alter {table} --accept-topic`. "
        f"To start over, run `ottla table drop {table}` and `ottla table create`"
    )
