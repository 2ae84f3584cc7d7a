"""Guards of what is asked of coordinators: groups, their offsets, transactions."""

from __future__ import annotations

from typing import Any

from ottla.broker.authorization.access_checks import (
    GROUP_REFUSED,
    TOPIC_REFUSED,
    allowed,
    answered_with,
    error_of,
    may,
    require_cluster,
    require_group,
    require_transactional_id,
    split,
)
from ottla.broker.authorization.actions import Kind, Operation
from ottla.broker.authorization.data_guards import name_of, split_topics
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.protocol.errors import OperationNotAttempted, TopicAuthorizationFailed, TransactionalIdAuthorizationFailed
from ottla.protocol.messages.rpc import (
    add_partitions_to_txn,
    alter_share_group_offsets,
    consumer_group_describe,
    delete_groups,
    delete_share_group_offsets,
    describe_groups,
    describe_share_group_offsets,
    describe_transactions,
    find_coordinator,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    share_group_describe,
    txn_offset_commit,
)
from ottla.protocol.messages.rpc.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.rpc.end_txn import EndTxnRequest

_KINDS = {0: Kind.GROUP, 1: Kind.TRANSACTIONAL_ID}
_SHARE_KEYS = 2
_NO_OFFSET = -1


def guard_find_coordinator(call: Call[BrokerNode], request: find_coordinator.FindCoordinatorRequest) -> None:
    """DESCRIBE on each group or transactional id."""
    if request.key_type == _SHARE_KEYS:
        require_cluster(call, Operation.CLUSTER_ACTION)
    kind = _KINDS.get(request.key_type)
    if kind is None:
        return
    error = error_of(kind)
    if call.version < 4:
        if not may(call, Operation.DESCRIBE, kind, request.key):
            raise error
        return
    request.coordinator_keys, bad = split(call, Operation.DESCRIBE, kind, request.coordinator_keys, str)
    answered_with(
        call,
        "coordinators",
        (
            find_coordinator.Coordinator(
                key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message
            )
            for key in bad
        ),
    )


def guard_offset_commit(call: Call[BrokerNode], request: offset_commit.OffsetCommitRequest) -> None:
    """READ on the group, and on each topic."""
    require_group(call, Operation.READ, request.group_id)
    request.topics, bad = split_topics(call, Operation.READ, request.topics)
    answered_with(
        call,
        "topics",
        (
            offset_commit.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    offset_commit.OffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=TOPIC_REFUSED
                    )
                    for part in topic.partitions
                ],
            )
            for topic in bad
        ),
    )


def guard_offset_fetch(call: Call[BrokerNode], request: offset_fetch.OffsetFetchRequest) -> None:
    """DESCRIBE on each group, and on each topic; of all topics, those are left out that may not be seen."""
    if call.version < 8:
        require_group(call, Operation.DESCRIBE, request.group_id)
        _guard_one_group(call, request)
        return
    request.groups, bad = split(call, Operation.DESCRIBE, Kind.GROUP, request.groups, lambda group: group.group_id)
    refused = [offset_fetch.OffsetFetchResponseGroup(group_id=each.group_id, error_code=GROUP_REFUSED) for each in bad]
    everything = {group.group_id for group in request.groups if group.topics is None}
    hidden: dict[str, list[offset_fetch.OffsetFetchResponseTopics]] = {}
    for group in request.groups:
        if group.topics is not None:
            hidden[group.group_id] = _hide_topics(call, group)

    def amend(response: offset_fetch.OffsetFetchResponse) -> offset_fetch.OffsetFetchResponse:
        found = [group for group in response.groups if not group.error_code]
        seen = [_seen_topics(call, group) if group.group_id in everything else group.topics for group in found]
        for group, topics in zip(found, seen, strict=True):
            group.topics = [*topics, *hidden.get(group.group_id, ())]
        response.groups.extend(refused)
        return response

    call.amend = amend


def _seen_topics(
    call: Call[BrokerNode], group: offset_fetch.OffsetFetchResponseGroup
) -> list[offset_fetch.OffsetFetchResponseTopics]:
    names = [name_of(call, topic.name, topic.topic_id) or "" for topic in group.topics]
    seen = allowed(call, Operation.DESCRIBE, Kind.TOPIC, names)
    return [topic for topic, name in zip(group.topics, names, strict=True) if name in seen]


def _hide_topics(
    call: Call[BrokerNode], group: offset_fetch.OffsetFetchRequestGroup
) -> list[offset_fetch.OffsetFetchResponseTopics]:
    group.topics, bad = split_topics(call, Operation.DESCRIBE, group.topics or [])
    return [
        offset_fetch.OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                offset_fetch.OffsetFetchResponsePartitions(
                    partition_index=number, committed_offset=_NO_OFFSET, error_code=TOPIC_REFUSED
                )
                for number in topic.partition_indexes
            ],
        )
        for topic in bad
    ]


def _guard_one_group(call: Call[BrokerNode], request: offset_fetch.OffsetFetchRequest) -> None:
    if request.topics is None:

        def amend(response: offset_fetch.OffsetFetchResponse) -> offset_fetch.OffsetFetchResponse:
            response.topics, _ = split(call, Operation.DESCRIBE, Kind.TOPIC, response.topics, lambda topic: topic.name)
            return response

        call.amend = amend
        return
    request.topics, bad = split(call, Operation.DESCRIBE, Kind.TOPIC, request.topics, lambda topic: topic.name)
    answered_with(
        call,
        "topics",
        (
            offset_fetch.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    offset_fetch.OffsetFetchResponsePartition(
                        partition_index=number, committed_offset=_NO_OFFSET, error_code=TOPIC_REFUSED
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in bad
        ),
    )


def guard_describe_groups(call: Call[BrokerNode], request: describe_groups.DescribeGroupsRequest) -> None:
    """DESCRIBE on each group."""
    request.groups, bad = split(call, Operation.DESCRIBE, Kind.GROUP, request.groups, str)
    answered_with(
        call, "groups", (describe_groups.DescribedGroup(group_id=each, error_code=GROUP_REFUSED) for each in bad)
    )


def guard_list_groups(call: Call[BrokerNode], request: list_groups.ListGroupsRequest) -> None:
    """DESCRIBE on the cluster shows all groups; otherwise those are told that may be described themselves."""
    if may(call, Operation.DESCRIBE, Kind.CLUSTER, log_if_denied=False):
        return

    def amend(response: list_groups.ListGroupsResponse) -> list_groups.ListGroupsResponse:
        response.groups, _ = split(
            call, Operation.DESCRIBE, Kind.GROUP, response.groups, lambda group: group.group_id, log_if_denied=False
        )
        return response

    call.amend = amend


def guard_delete_groups(call: Call[BrokerNode], request: delete_groups.DeleteGroupsRequest) -> None:
    """DELETE on each group."""
    request.groups_names, bad = split(call, Operation.DELETE, Kind.GROUP, request.groups_names, str)
    answered_with(
        call, "results", (delete_groups.DeletableGroupResult(group_id=each, error_code=GROUP_REFUSED) for each in bad)
    )


def guard_offset_delete(call: Call[BrokerNode], request: offset_delete.OffsetDeleteRequest) -> None:
    """DELETE on the group, READ on each topic."""
    require_group(call, Operation.DELETE, request.group_id)
    request.topics, bad = split(call, Operation.READ, Kind.TOPIC, request.topics, lambda topic: topic.name)
    answered_with(
        call,
        "topics",
        (
            offset_delete.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    offset_delete.OffsetDeleteResponsePartition(
                        partition_index=part.partition_index, error_code=TOPIC_REFUSED
                    )
                    for part in topic.partitions
                ],
            )
            for topic in bad
        ),
    )


def guard_group_heartbeat(call: Call[BrokerNode], request: ConsumerGroupHeartbeatRequest) -> None:
    """READ on the group, DESCRIBE on every topic that is subscribed to."""
    require_group(call, Operation.READ, request.group_id)
    names = set(request.subscribed_topic_names or ())
    if len(allowed(call, Operation.DESCRIBE, Kind.TOPIC, names)) < len(names):
        raise TopicAuthorizationFailed("Topic authorization failed.")


def guard_consumer_group_describe(
    call: Call[BrokerNode], request: consumer_group_describe.ConsumerGroupDescribeRequest
) -> None:
    """DESCRIBE on each group; a group is not told of that has topics which the client may not see."""
    _guard_described(call, request, consumer_group_describe.DescribedGroup)


def guard_share_group_describe(call: Call[BrokerNode], request: share_group_describe.ShareGroupDescribeRequest) -> None:
    """As for consumer groups."""
    _guard_described(call, request, share_group_describe.DescribedGroup)


def _guard_described(call: Call[BrokerNode], request: Any, described: Any) -> None:
    request.group_ids, bad = split(call, Operation.DESCRIBE, Kind.GROUP, request.group_ids, str)
    refused = [described(group_id=each, error_code=GROUP_REFUSED) for each in bad]

    def amend(response: Any) -> Any:
        for number, group in enumerate(response.groups):
            names = {name for member in group.members for name in _topics_of(member)}
            if len(allowed(call, Operation.DESCRIBE, Kind.TOPIC, names)) < len(names):
                response.groups[number] = described(
                    group_id=group.group_id,
                    error_code=TOPIC_REFUSED,
                    error_message="The group has described topic(s) that the client is not authorized to describe.",
                )
        response.groups.extend(refused)
        return response

    call.amend = amend


def _topics_of(member: Any) -> set[str]:
    names = set(member.subscribed_topic_names)
    for assignment in (member.assignment, getattr(member, "target_assignment", None)):
        if assignment is not None:
            names |= {part.topic_name for part in assignment.topic_partitions}
    return names


def guard_describe_share_group_offsets(
    call: Call[BrokerNode], request: describe_share_group_offsets.DescribeShareGroupOffsetsRequest
) -> None:
    """DESCRIBE on each group, and on each topic; of all topics, those are left out that may not be seen."""
    asked = describe_share_group_offsets
    request.groups, bad = split(call, Operation.DESCRIBE, Kind.GROUP, request.groups, lambda group: group.group_id)
    refused = [
        asked.DescribeShareGroupOffsetsResponseGroup(group_id=each.group_id, error_code=GROUP_REFUSED) for each in bad
    ]
    everything = {group.group_id for group in request.groups if group.topics is None}
    hidden: dict[str, list[describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic]] = {}
    for group in request.groups:
        if group.topics is not None:
            group.topics, unseen = split(
                call, Operation.DESCRIBE, Kind.TOPIC, group.topics, lambda topic: topic.topic_name
            )
            hidden[group.group_id] = [_unseen_share_topic(topic) for topic in unseen]

    def amend(
        response: describe_share_group_offsets.DescribeShareGroupOffsetsResponse,
    ) -> describe_share_group_offsets.DescribeShareGroupOffsetsResponse:
        seen = [
            split(call, Operation.DESCRIBE, Kind.TOPIC, group.topics, lambda topic: topic.topic_name)[0]
            if group.group_id in everything
            else group.topics
            for group in response.groups
        ]
        for group, topics in zip(response.groups, seen, strict=True):
            group.topics = topics
            if not group.error_code:
                group.topics.extend(hidden.get(group.group_id, ()))
        response.groups.extend(refused)
        return response

    call.amend = amend


def _unseen_share_topic(
    topic: describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic,
) -> describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic:
    return describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            describe_share_group_offsets.DescribeShareGroupOffsetsResponsePartition(
                partition_index=number,
                start_offset=_NO_OFFSET,
                error_code=TOPIC_REFUSED,
                error_message="Topic authorization failed.",
            )
            for number in topic.partitions
        ],
    )


def guard_alter_share_group_offsets(
    call: Call[BrokerNode], request: alter_share_group_offsets.AlterShareGroupOffsetsRequest
) -> None:
    """READ on the group, and on each topic."""
    require_group(call, Operation.READ, request.group_id)
    request.topics, bad = split(call, Operation.READ, Kind.TOPIC, request.topics, lambda topic: topic.topic_name)
    answered_with(
        call,
        "responses",
        (
            alter_share_group_offsets.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                partitions=[
                    alter_share_group_offsets.AlterShareGroupOffsetsResponsePartition(
                        partition_index=part.partition_index,
                        error_code=TOPIC_REFUSED,
                        error_message="Topic authorization failed.",
                    )
                    for part in topic.partitions
                ],
            )
            for topic in bad
        ),
    )


def guard_delete_share_group_offsets(
    call: Call[BrokerNode], request: delete_share_group_offsets.DeleteShareGroupOffsetsRequest
) -> None:
    """DELETE on the group, READ on each topic."""
    require_group(call, Operation.DELETE, request.group_id)
    request.topics, bad = split(call, Operation.READ, Kind.TOPIC, request.topics, lambda topic: topic.topic_name)
    answered_with(
        call,
        "responses",
        (
            delete_share_group_offsets.DeleteShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, error_code=TOPIC_REFUSED, error_message="Topic authorization failed."
            )
            for topic in bad
        ),
    )


def guard_add_partitions(call: Call[BrokerNode], request: add_partitions_to_txn.AddPartitionsToTxnRequest) -> None:
    """Of clients WRITE on the transactional id and on all topics, or none is added; from v4 on brokers ask."""
    if call.version >= 4:
        require_cluster(call, Operation.CLUSTER_ACTION)
        return
    require_transactional_id(call, Operation.WRITE, request.v3_and_below_transactional_id)
    topics = request.v3_and_below_topics
    writable = allowed(call, Operation.WRITE, Kind.TOPIC, (topic.name for topic in topics))
    if all(topic.name in writable for topic in topics):
        return
    refused = [
        add_partitions_to_txn.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                    partition_index=number,
                    partition_error_code=OperationNotAttempted.code if topic.name in writable else TOPIC_REFUSED,
                )
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]
    request.v3_and_below_topics = []
    answer = add_partitions_to_txn.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=refused)
    call.amend = lambda _: answer


def guard_add_offsets(call: Call[BrokerNode], request: AddOffsetsToTxnRequest) -> None:
    """WRITE on the transactional id, READ on the group."""
    require_transactional_id(call, Operation.WRITE, request.transactional_id)
    require_group(call, Operation.READ, request.group_id)


def guard_end_txn(call: Call[BrokerNode], request: EndTxnRequest) -> None:
    """WRITE on the transactional id."""
    require_transactional_id(call, Operation.WRITE, request.transactional_id)


def guard_write_txn_markers(call: Call[BrokerNode], request: Any) -> None:
    """Brokers, and those who may alter the cluster."""
    if not may(call, Operation.ALTER, Kind.CLUSTER, log_if_denied=False):
        require_cluster(call, Operation.CLUSTER_ACTION)


def guard_txn_offset_commit(call: Call[BrokerNode], request: txn_offset_commit.TxnOffsetCommitRequest) -> None:
    """WRITE on the transactional id, READ on the group and on each topic."""
    require_transactional_id(call, Operation.WRITE, request.transactional_id)
    require_group(call, Operation.READ, request.group_id)
    request.topics, bad = split(call, Operation.READ, Kind.TOPIC, request.topics, lambda topic: topic.name)
    answered_with(
        call,
        "topics",
        (
            txn_offset_commit.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    txn_offset_commit.TxnOffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=TOPIC_REFUSED
                    )
                    for part in topic.partitions
                ],
            )
            for topic in bad
        ),
    )


def guard_describe_transactions(
    call: Call[BrokerNode], request: describe_transactions.DescribeTransactionsRequest
) -> None:
    """DESCRIBE on each transactional id; topics that may not be described are left out."""
    ids, bad = split(call, Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, request.transactional_ids, str)
    request.transactional_ids = ids
    code = TransactionalIdAuthorizationFailed.code
    refused = [describe_transactions.TransactionState(transactional_id=each, error_code=code) for each in bad]

    def amend(
        response: describe_transactions.DescribeTransactionsResponse,
    ) -> describe_transactions.DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics, _ = split(call, Operation.DESCRIBE, Kind.TOPIC, state.topics, lambda topic: topic.topic)
        response.transaction_states.extend(refused)
        return response

    call.amend = amend


def guard_list_transactions(call: Call[BrokerNode], request: list_transactions.ListTransactionsRequest) -> None:
    """Those are told whose transactional ids may be described."""

    def amend(response: list_transactions.ListTransactionsResponse) -> list_transactions.ListTransactionsResponse:
        response.transaction_states, _ = split(
            call,
            Operation.DESCRIBE,
            Kind.TRANSACTIONAL_ID,
            response.transaction_states,
            lambda state: state.transactional_id,
        )
        return response

    call.amend = amend
