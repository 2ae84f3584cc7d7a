"""The page that shows the states of a topic's partitions and replicas as JSON: `GET /topics?name=orders`.

One answer has at most 1,000 partitions; `next` is the value of `from` for the next request, or null. Only the active
controller knows which replicas of deleted topics or finished reassignments the brokers have yet to remove: on other
nodes `deletions` is null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from itertools import chain, islice
from typing import Any, Final

from ottla.metadata.controller.state_tracker import Deletion, StateTracker
from ottla.metadata.image.values import Topic
from ottla.node.http_server import Answer
from ottla.storage.directories.node_files import show_id

MAX_PARTITIONS: Final = 1_000
MAX_DELETED_REPLICAS: Final = 1_000
_JSON: Final = "application/json"


class TopicStates:
    """Answers requests from the states of a tracker."""

    def __init__(self, states: StateTracker, is_active: Callable[[], bool]) -> None:
        self._states = states
        self._is_active = is_active

    def __call__(self, query: Mapping[str, str]) -> Answer:
        """Return the answer to a request with this query."""
        name = query.get("name", "")
        first = query.get("from", "0")
        if not name or not (first.isascii() and first.isdecimal()):
            return _problem(
                HTTPStatus.BAD_REQUEST,
                "The request names no topic, or no partition to begin with. Ask for /topics?name=NAME, and for more "
                "than the first 1,000 partitions with &from=NUMBER.",
            )
        states = self._states
        topic = states.image.topic(name)
        is_active = self._is_active()
        deletions = [each for each in states.deletions if each.topic == name] if is_active else []
        if topic is None and not deletions:
            return _problem(
                HTTPStatus.NOT_FOUND,
                f"There is no topic {name!r} in the metadata that this node has applied, up to offset "
                f"{states.image.offset}. Check the name with `ottla topic list`.",
            )
        described: dict[str, Any] = {
            "topic": name,
            "metadata_offset": states.image.offset,
            "is_active_controller": is_active,
            "id": None,
            "partition_count": 0,
            "partitions": [],
            "next": None,
            "deletions": _deletions(deletions) if is_active else None,
        }
        if topic is not None:
            described |= self._partitions(topic, int(first))
        return Answer(json.dumps(described, ensure_ascii=False) + "\n", content_type=_JSON)

    def _partitions(self, topic: Topic, first: int) -> dict[str, Any]:
        count, end = len(topic.partitions), first + MAX_PARTITIONS
        return {
            "id": show_id(topic.id),
            "partition_count": count,
            "partitions": [
                {
                    "partition": each.number,
                    "state": each.state,
                    "leader": each.leader if each.leader >= 0 else None,
                    "replicas": [{"broker": broker, "state": state} for broker, state in each.replicas.items()],
                }
                for each in self._states.states_of(topic, first, end)
            ],
            "next": end if end < count else None,
        }


def _deletions(deletions: Iterable[Deletion]) -> list[dict[str, Any]]:
    """Describe the replicas of unfinished deletions, up to MAX_DELETED_REPLICAS."""
    replicas = chain.from_iterable(((each, *replica) for replica in each.replicas()) for each in deletions)
    shown: dict[int, dict[str, Any]] = {}
    for deletion, number, broker, state in islice(replicas, MAX_DELETED_REPLICAS):
        described = shown.setdefault(
            deletion.offset, {"id": show_id(deletion.topic_id), "metadata_offset": deletion.offset, "replicas": []}
        )
        described["replicas"].append({"partition": number, "broker": broker, "state": state})
    return [*shown.values()]


def _problem(status: HTTPStatus, problem: str) -> Answer:
    return Answer(json.dumps({"error": problem}) + "\n", status, _JSON)
