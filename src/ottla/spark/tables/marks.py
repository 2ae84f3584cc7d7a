"""How far a table has come: which records of which topic of which cluster are in it. Every commit carries this.

A topic that was deleted and made anew has another id. Its offsets begin again, and mean other records: a run notices
before it reads, and again before each commit.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.spark.tables.failures import TableError

_PREFIX: Final = "ottla."
OFFSETS: Final = "ottla.offsets"


class Marks(NamedTuple):
    """What a commit says of where its rows come from."""

    cluster: str
    topic: str
    topic_id: str
    mode: str
    """How the rows got in, and therefore what they are: every record ("append"), or the last of each key ("upsert")."""
    offsets: Mapping[int, int]
    """The next offset of each partition that was read."""
    topics: int = 1
    """How many topics of that name the rows are of: more than one where a topic made anew was accepted."""

    def to_properties(self) -> dict[str, str]:
        """As text, for a snapshot's summary or a commit's metadata."""
        return {
            f"{_PREFIX}cluster-id": self.cluster,
            f"{_PREFIX}topic": self.topic,
            f"{_PREFIX}topic-id": self.topic_id,
            f"{_PREFIX}mode": self.mode,
            f"{_PREFIX}topics": str(self.topics),
            OFFSETS: json.dumps({str(number): offset for number, offset in sorted(self.offsets.items())}),
        }

    def check(self, now: "Marks", table: str) -> None:
        """Raise TableError if the topic is not the one that the table was made from."""
        if self.cluster != now.cluster:
            raise TableError(
                f"table {table!r} was made from cluster {self.cluster}, but the cluster there is {now.cluster} now. "
                f"Was another one meant (--bootstrap-server)? {_way_on(table)}"
            )
        if self.topic_id != now.topic_id:
            raise TableError(
                f"table {table!r}: topic {now.topic!r} was made anew. The table holds records of the one with id "
                f"{self.topic_id}, now it is {now.topic_id}. {_way_on(table)}"
            )

    def check_mode(self, mode: str, table: str) -> None:
        """Raise TableError if rows that were appended cannot be told which of a key came last."""
        if mode == "upsert" != self.mode and self.topics > 1:
            raise TableError(
                f"table {table!r} holds rows of {self.topics} topics named {self.topic!r}, each with its own offsets: "
                f"which row of a key is the last cannot be told any more. `ottla table drop {table}` and "
                "`create --mode upsert` begin anew"
            )

    def advanced(self, offsets: Mapping[int, int]) -> "Marks":
        return self._replace(offsets={**self.offsets, **offsets})


def from_properties(given: Mapping[str, str]) -> Marks | None:
    """Marks, where a commit has them."""
    if OFFSETS not in given:
        return None
    return Marks(
        cluster=given[f"{_PREFIX}cluster-id"],
        topic=given[f"{_PREFIX}topic"],
        topic_id=given[f"{_PREFIX}topic-id"],
        mode=given[f"{_PREFIX}mode"],
        offsets={int(number): offset for number, offset in json.loads(given[OFFSETS]).items()},
        topics=int(given.get(f"{_PREFIX}topics", 1)),
    )


def _way_on(table: str) -> str:
    return (
        f"`ottla table alter {table} --accept-topic` keeps the rows that are there and goes on with this topic from "
        f"its beginning; `ottla table drop {table}` and `create` begin anew"
    )
