"""Coordinators and committed offsets as Kafka's: every version, groups with and without members."""

from itertools import count
from typing import Any

import pytest

from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.protocol.messages.rpc.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.rpc.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.list_groups import ListGroupsRequest
from ottla.protocol.messages.rpc.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.rpc.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.rpc.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.conformance.differential.groups import wait_for_group_coordinators
from tests.conformance.differential.harness import NodePair, RequestSource, Side
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.requests import UNKNOWN_ID

numbers = count(1)


def versions_of(key: ApiKey) -> range:
    return range(BY_KEY[key].oldest, BY_KEY[key].latest_stable + 1)


@pytest.fixture(autouse=True)
def ready(both: NodePair) -> None:
    wait_for_group_coordinators(both)


@pytest.fixture(scope="module")
def topic(two_nodes: tuple[NodePair, object]) -> str:
    return two_nodes[0].new_topic(partitions=3)


@pytest.fixture
def group() -> str:
    return f"offsets-{next(numbers)}"


def id_of(side: Side, topic: str) -> bytes:
    try:
        return side.id_of(topic)
    except KeyError:
        return UNKNOWN_ID


def commit(group: str, *parts: tuple[str, int, int], metadata: str | None = "", **fields: Any) -> RequestSource:
    """Return a commit of (topic, partition, offset)."""

    def make(side: Side) -> OffsetCommitRequest:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for topic, partition, offset in parts:
            entry = topics.setdefault(topic, OffsetCommitRequestTopic(name=topic, topic_id=id_of(side, topic)))
            entry.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=fields.get("epoch", -1),
                    committed_metadata=metadata,
                )
            )
        request_fields = {name: value for name, value in fields.items() if name != "epoch"}
        return OffsetCommitRequest(group_id=group, topics=list(topics.values()), **request_fields)

    return make


def fetch(
    version: int, group: str, parts: list[tuple[str, list[int]]] | None, *, stable: bool = False
) -> RequestSource:
    """Return a request for the offsets of some or all partitions."""

    def make(side: Side) -> OffsetFetchRequest:
        if version < 8:
            named_topics = None
            if parts is not None:
                named_topics = [
                    OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in parts
                ]
            return OffsetFetchRequest(group_id=group, topics=named_topics, require_stable=stable)
        topics = None
        if parts is not None:
            topics = [
                OffsetFetchRequestTopics(name=name, topic_id=id_of(side, name), partition_indexes=indexes)
                for name, indexes in parts
            ]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable
        )

    return make


class TestFindCoordinator:
    @pytest.mark.parametrize("version", versions_of(ApiKey.FIND_COORDINATOR))
    @pytest.mark.parametrize("kind", [0, 1, 2, 3, -1])
    def test_every_key_type_gets_the_same_answer(self, both: NodePair, version: int, kind: int) -> None:
        if kind and version == 0:
            pytest.skip("v0 has no types of keys")
        for key in ("a-group", "", "ü€😀", "g:AAAAAAAAAAAAAAAAAAAAAQ:0", "g:AAAAAAAAAAAAAAAAAAAAAQ", "g:x:y", "::"):
            request = FindCoordinatorRequest(key=key, coordinator_keys=[key], key_type=kind)
            answers = both.ask(request, version)
            if isinstance(answers.kafka, str):
                assert answers.kafka == answers.ottla
            else:
                both.expect_same_soon(request, version, within_s=20, messages=Messages.LOOSELY)

    @pytest.mark.parametrize("version", range(4, 7))
    def test_several_keys_get_the_same_answers(self, both: NodePair, version: int) -> None:
        both.expect_same(FindCoordinatorRequest(coordinator_keys=["a", "b", "a", ""]), version)
        both.expect_same(FindCoordinatorRequest(coordinator_keys=[]), version)


class TestCommittedOffsets:
    @pytest.mark.parametrize("version", versions_of(ApiKey.OFFSET_COMMIT))
    def test_committed_offsets_are_fetched(self, both: NodePair, topic: str, group: str, version: int) -> None:
        both.expect_same(commit(group, (topic, 0, 5), (topic, 2, 0), metadata="so far", epoch=3), version)
        for fetch_version in versions_of(ApiKey.OFFSET_FETCH):
            both.expect_same(fetch(fetch_version, group, [(topic, [0, 1, 2])]), fetch_version)
            both.expect_same(fetch(fetch_version, group, [(topic, [])]), fetch_version)
            both.expect_same(fetch(fetch_version, group, []), fetch_version)
            if fetch_version >= 2:
                both.expect_same(fetch(fetch_version, group, None), fetch_version)
        both.expect_same(commit(group, (topic, 0, 3), metadata=None), version)
        both.expect_same(fetch(9, group, None, stable=True), 9)

    @pytest.mark.parametrize("version", versions_of(ApiKey.OFFSET_COMMIT))
    def test_invalid_commits_are_refused(self, both: NodePair, topic: str, group: str, version: int) -> None:
        both.expect_same(commit(group, (topic, 7, 1), (topic, -1, 1), (topic, 1, 1)), version)
        both.expect_same(commit(group, ("nowhere", 0, 1), (topic, 1, 2)), version)
        both.expect_same(commit(group, ("nowhere", 0, 1)), version)
        both.expect_same(commit(group), version)
        both.expect_same(commit("", (topic, 0, 1)), version)
        both.expect_same(commit(group, (topic, 0, 1), metadata="x" * 4096), version)
        both.expect_same(commit(group, (topic, 0, 1), metadata="x" * 4097), version)
        both.expect_same(commit(group, (topic, 0, -7)), version)
        for generation in (-2, 0, 1):
            both.expect_same(commit(group, (topic, 0, 1), generation_id_or_member_epoch=generation), version)
            name = f"{group}-new-{generation}"
            both.expect_same(commit(name, (topic, 0, 1), generation_id_or_member_epoch=generation), version)
        both.expect_same(commit(group, (topic, 0, 1), member_id="nobody"), version)
        both.expect_same(commit(group, (topic, 0, 1), member_id="nobody", generation_id_or_member_epoch=1), version)
        if version >= 7:
            both.expect_same(commit(group, (topic, 0, 1), group_instance_id="nobody"), version)
        if version < 5:
            both.expect_same(commit(group, (topic, 0, 1), retention_time_ms=100_000), version)
        both.expect_same(fetch(8, group, None), 8)

    @pytest.mark.parametrize("version", versions_of(ApiKey.OFFSET_FETCH))
    def test_missing_offsets_get_the_same_answers(self, both: NodePair, topic: str, group: str, version: int) -> None:
        both.expect_same(fetch(version, group, [(topic, [0, 9]), ("nowhere", [0])]), version)
        both.expect_same(fetch(version, "", [(topic, [0])]), version)
        both.expect_same(commit(group, (topic, 0, 5)), 8)
        both.expect_same(fetch(version, group, [(topic, [0, 9]), ("nowhere", [0]), (topic, [1])]), version)
        if version >= 2:
            both.expect_same(fetch(version, f"{group}-missing", None), version)
        if version >= 8:
            groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (group, "missing", group)]
            both.expect_same(OffsetFetchRequest(groups=groups), version)
            both.expect_same(OffsetFetchRequest(groups=[]), version)
        if version >= 9:
            for member, epoch in (("nobody", 1), ("nobody", -1), (None, 5)):
                groups = [OffsetFetchRequestGroup(group_id=group, topics=None, member_id=member, member_epoch=epoch)]
                both.expect_same(OffsetFetchRequest(groups=groups), version)

    @pytest.mark.parametrize("version", [8, 9, 10])
    def test_a_missing_topic_comes_last_if_fetched_by_id(
        self, both: NodePair, topic: str, group: str, version: int
    ) -> None:
        both.expect_same(commit(group, (topic, 0, 5)), 8)
        answers = both.expect_same(fetch(version, group, [("nowhere", [0]), (topic, [0, 2])]), version)
        sizes = [[len(entry.partitions) for entry in answer.groups[0].topics] for answer in answers]
        assert sizes == [[2, 1] if version >= 10 else [1, 2]] * 2

    def test_offsets_of_a_deleted_topic_are_deleted(self, both: NodePair, group: str) -> None:
        for again in (False, True):
            name = both.new_topic()
            both.expect_same(commit(group, (name, 0, 7)), 9)
            both.expect_same(commit(group, (name, 0, 8)), 10)
            both.delete_topic(name)
            both.expect_same_soon(fetch(9, group, None), 9)
            both.expect_same_soon(fetch(10, group, None), 10)
            both.expect_same(fetch(10, group, [(name, [0])]), 10)
            if again:
                both.create_topic(name)
                both.expect_same(fetch(10, group, [(name, [0])]), 10)
                both.expect_same(fetch(9, group, [(name, [0])]), 9)


class TestDeletion:
    def test_offsets_are_deleted_the_same_way(self, both: NodePair, topic: str, group: str) -> None:
        def delete(*parts: tuple[str, list[int]], group_id: str = group) -> OffsetDeleteRequest:
            topics = [
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
                )
                for name, indexes in parts
            ]
            return OffsetDeleteRequest(group_id=group_id, topics=topics)

        both.expect_same(delete((topic, [0])), 0)
        both.expect_same(delete((topic, [0]), group_id=""), 0)
        both.expect_same(commit(group, (topic, 0, 5), (topic, 1, 6)), 9)
        both.expect_same(delete((topic, [0, 2, 9]), ("nowhere", [0])), 0)
        both.expect_same(delete((topic, [0, 0]), (topic, [2])), 0)
        both.expect_same(delete(), 0)
        both.expect_same(delete((topic, [])), 0)
        both.expect_same(fetch(9, group, None), 9)
        both.expect_same(delete((topic, [1])), 0)
        both.expect_same(fetch(9, group, None), 9)
        both.expect_same(DescribeGroupsRequest(groups=[group]), 6)

    @pytest.mark.parametrize("version", versions_of(ApiKey.DELETE_GROUPS))
    def test_groups_are_deleted_the_same_way(self, both: NodePair, topic: str, group: str, version: int) -> None:
        both.expect_same(commit(group, (topic, 0, 5), (topic, 1, 6)), 9)
        both.expect_same(DeleteGroupsRequest(groups_names=[group, "missing", "", "missing"]), version)
        both.expect_same(DeleteGroupsRequest(groups_names=[group]), version)
        both.expect_same(DeleteGroupsRequest(groups_names=[]), version)
        both.expect_same(fetch(9, group, None), 9)


class TestDescribing:
    @pytest.mark.parametrize("version", versions_of(ApiKey.DESCRIBE_GROUPS))
    def test_groups_without_members_are_described_the_same_way(
        self, both: NodePair, topic: str, group: str, version: int
    ) -> None:
        both.expect_same(commit(group, (topic, 0, 5)), 9)
        for with_operations in (False, True) if version >= 3 else (False,):
            request = DescribeGroupsRequest(
                groups=[group, "missing", "", group], include_authorized_operations=with_operations
            )
            both.expect_same(request, version, messages=Messages.EXACTLY)
        both.expect_same(DescribeGroupsRequest(groups=[]), version)

    @pytest.mark.parametrize("version", versions_of(ApiKey.LIST_GROUPS))
    def test_groups_are_listed_the_same_way(self, both: NodePair, topic: str, group: str, version: int) -> None:
        both.expect_same(commit(group, (topic, 0, 5)), 9)
        states: list[list[str]] = [[]]
        kinds: list[list[str]] = [[]]
        if version >= 4:
            states += [["Empty"], ["empty"], ["Stable"], ["Dead", "Empty"], ["nonsense"], [""]]
        if version >= 5:
            kinds += [["classic"], ["Classic"], ["consumer"], ["share", "classic"], ["nonsense"], [""]]
        for state in states:
            for kind in kinds:
                answers = both.ask(ListGroupsRequest(states_filter=state, types_filter=kind), version)
                # Without other tests' groups, which Kafka may have forgotten when it refused a classic member.
                for answer in answers:
                    answer.groups = [entry for entry in answer.groups if entry.group_id.startswith("offsets-")]
                assert both.differences(answers, version) == []
