"""The page with the states of a topic's partitions and replicas."""

import json
from typing import Any

import pytest

from ottla.metadata.controller.state_tracker import StateTracker
from ottla.metadata.image.changes import Changes
from ottla.metadata.image.image import EMPTY, Image
from ottla.node.topic_states import MAX_DELETED_REPLICAS, MAX_PARTITIONS, TopicStates
from ottla.protocol.messages.records.metadata_records import PartitionChangeRecord, RemoveTopicRecord
from tests.unit.metadata.image.stories import replay, uuid
from tests.unit.metadata.image.test_cost import topic


class Page:
    """The page of a node, and the images that the node applies."""

    def __init__(self, partitions: int) -> None:
        self.is_active = True
        self.states = StateTracker()
        self.states.is_active = True
        self._page = TopicStates(self.states, lambda: self.is_active)
        self.image: Image = EMPTY
        self.apply(*topic(1, partitions))

    def apply(self, *records: object) -> None:
        before, self.image = self.image, replay([*records], self.image)
        self.states.follow(Changes.between(before, self.image))

    def get(self, **query: str) -> tuple[int, dict[str, Any]]:
        answer = self._page(query)
        assert answer.content_type == "application/json"
        return answer.status.value, json.loads(answer.body)


def test_a_page_shows_partitions_and_replicas() -> None:
    page = Page(2)
    for leader in (1, -1):
        page.apply(PartitionChangeRecord(partition_id=1, topic_id=uuid(1), leader=leader))
    code, shown = page.get(name="t1")
    assert code == 200
    offline = [{"broker": number, "state": "OfflineReplica"} for number in (0, 1, 2)]
    assert shown["partitions"] == [
        {"partition": 0, "state": "OnlinePartition", "leader": 0, "replicas": offline},
        {"partition": 1, "state": "OfflinePartition", "leader": None, "replicas": offline},
    ], "no broker is registered here"
    assert (shown["partition_count"], shown["next"], shown["deletions"]) == (2, None, [])
    assert shown["metadata_offset"] == page.image.offset


def test_a_large_topic_takes_several_pages() -> None:
    page = Page(2 * MAX_PARTITIONS + 1)
    first, numbers = "0", []
    while first != "None":
        _, shown = page.get(name="t1", **{"from": first})
        assert len(shown["partitions"]) <= MAX_PARTITIONS
        numbers += [each["partition"] for each in shown["partitions"]]
        first = str(shown["next"])
    assert numbers == [*range(2 * MAX_PARTITIONS + 1)]


def test_only_the_active_controller_shows_deletions() -> None:
    page = Page(1)
    page.is_active = False
    assert page.get(name="t1")[1]["deletions"] is None


def test_a_deleted_topic_without_brokers_is_not_found() -> None:
    page = Page(MAX_DELETED_REPLICAS)
    page.apply(RemoveTopicRecord(topic_id=uuid(1)))
    code, shown = page.get(name="t1")
    assert code == 404
    assert "There is no topic 't1'" in shown["error"]


@pytest.mark.parametrize("query", [{}, {"name": ""}, {"name": "t1", "from": "x"}, {"name": "t1", "from": "-1"}])
def test_a_bad_request_explains_the_query(query: dict[str, str]) -> None:
    code, shown = Page(1).get(**query)
    assert code == 400
    assert "/topics?name=NAME" in shown["error"]
