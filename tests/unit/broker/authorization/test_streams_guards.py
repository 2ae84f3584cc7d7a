"""Guards of the APIs for streams groups."""

import pytest

from ottla.broker.authorization.actions import Operation
from ottla.protocol.errors import GroupAuthorizationFailed, StreamsInvalidTopology, TopicAuthorizationFailed
from ottla.protocol.messages.rpc.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    TopicInfo,
    Topology,
)
from ottla.protocol.messages.rpc.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.protocol.messages.rpc.streams_group_heartbeat import Subtopology as HeardSubtopology
from ottla.protocol.messages.rpc.streams_group_heartbeat import Topology as HeardTopology
from tests.unit.broker.authorization.test_guards import GROUP, TOPIC, allowing, guarded, refused
from tests.unit.coordinators.groups.streams.threads import word_count

READ = (GROUP, "g", Operation.READ)
NAMES = ("lines", "words-repartition", "counts-changelog")


def heartbeat() -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(group_id="g", member_id="m", topology=word_count())


def test_a_streams_member_needs_describe_on_all_topics_of_its_topology() -> None:
    seen = [(TOPIC, name, Operation.DESCRIBE) for name in NAMES]
    assert refused(heartbeat(), 0, allowing(*seen)) is GroupAuthorizationFailed
    assert refused(heartbeat(), 0, allowing(READ, *seen[:2])) is TopicAuthorizationFailed
    guarded(heartbeat(), 0, allowing(READ, *seen))
    guarded(StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1), 0, allowing(READ))


@pytest.mark.parametrize("name", ["__consumer_offsets", "not valid"])
def test_invalid_topic_names_fail_before_authorization(name: str) -> None:
    request = heartbeat()
    request.topology = HeardTopology(subtopologies=[HeardSubtopology(subtopology_id="0", source_topics=[name])])
    assert refused(request, 0, allowing(READ)) is StreamsInvalidTopology


def test_a_streams_group_with_hidden_topics_is_not_described() -> None:
    def described(name: str) -> DescribedGroup:
        topology = Topology(
            subtopologies=[
                Subtopology(source_topics=["lines"], state_changelog_topics=[TopicInfo(name=f"{name}-changelog")])
            ]
        )
        return DescribedGroup(group_id=name, topology=topology)

    request = StreamsGroupDescribeRequest(group_ids=["seen", "hidden", "refused"])
    answer = guarded(
        request,
        0,
        allowing(
            (GROUP, "seen", Operation.DESCRIBE),
            (GROUP, "hidden", Operation.DESCRIBE),
            (TOPIC, "lines", Operation.DESCRIBE),
            (TOPIC, "seen-changelog", Operation.DESCRIBE),
        ),
        StreamsGroupDescribeResponse(groups=[described("seen"), described("hidden")]),
    )
    assert request.group_ids == ["seen", "hidden"]
    codes = {group.group_id: group.error_code for group in answer.groups}
    assert codes == {"seen": 0, "hidden": TopicAuthorizationFailed.code, "refused": GroupAuthorizationFailed.code}
    assert [group.topology is None for group in answer.groups if group.group_id == "hidden"] == [True]
