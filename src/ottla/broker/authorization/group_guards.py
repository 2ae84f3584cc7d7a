"""Guards of the APIs of coordinators: groups, their offsets, transactions."""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.authorization.access_checks import (
    GROUP_DENIED,
    TOPIC_DENIED,
    append_denied,
    authorization_error,
    filter_allowed,
    is_allowed,
    require_cluster,
    require_group,
    require_transactional_id,
    split_allowed,
)
from ottla.broker.authorization.actions import Operation, ResourceType
from ottla.broker.authorization.guards import (
    ItemGuard,
    ResultFilter,
    all_of,
    item_itself,
    name_field,
    of_group,
    of_transactional_id,
    resolve_topic_name,
    topic_name,
)
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.protocol.errors import OperationNotAttempted, TransactionalIdAuthorizationFailed
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
    offset_commit,
    offset_delete,
    offset_fetch,
    share_group_describe,
    txn_offset_commit,
)
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_KEY_TYPES = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
_SHARE_KEYS = 2
_NO_OFFSET = -1


def guard_find_coordinator(call: Call[BrokerNode], request: find_coordinator.FindCoordinatorRequest) -> None:
    """Require DESCRIBE on each group or transactional id."""
    if request.key_type == _SHARE_KEYS:
        require_cluster(call, Operation.CLUSTER_ACTION)
    resource_type = _KEY_TYPES.get(request.key_type)
    if resource_type is None:
        return
    error = authorization_error(resource_type)
    if call.version < 4:
        if not is_allowed(call, Operation.DESCRIBE, resource_type, request.key):
            raise error
        return
    keys, denied = split_allowed(call, Operation.DESCRIBE, resource_type, request.coordinator_keys, str)
    request.coordinator_keys = keys
    append_denied(
        call,
        "coordinators",
        (
            find_coordinator.Coordinator(
                key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message
            )
            for key in denied
        ),
    )


guard_offset_commit = ItemGuard(
    requires=(of_group(Operation.READ),),
    operation=Operation.READ,
    resource_type=ResourceType.TOPIC,
    items="topics",
    name_of=topic_name,
    results="topics",
    deny=lambda topic: offset_commit.OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            offset_commit.OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=TOPIC_DENIED
            )
            for partition in topic.partitions
        ],
    ),
)


def guard_offset_fetch(call: Call[BrokerNode], request: offset_fetch.OffsetFetchRequest) -> None:
    """Require DESCRIBE on each group and each topic.

    A request for all topics gets those that the client may describe.
    """
    if call.version < 8:
        require_group(call, Operation.DESCRIBE, request.group_id)
        (_filter_all_topics if request.topics is None else _guard_topics_of_group)(call, request)
        return
    request.groups, denied_groups = split_allowed(
        call, Operation.DESCRIBE, ResourceType.GROUP, request.groups, lambda group: group.group_id
    )
    denied = [
        offset_fetch.OffsetFetchResponseGroup(group_id=group.group_id, error_code=GROUP_DENIED)
        for group in denied_groups
    ]
    all_topics = {group.group_id for group in request.groups if group.topics is None}
    denied_topics = {
        group.group_id: _take_denied_topics(call, group) for group in request.groups if group.topics is not None
    }

    def amend(response: offset_fetch.OffsetFetchResponse) -> offset_fetch.OffsetFetchResponse:
        groups = [group for group in response.groups if not group.error_code]
        visible = [
            _describable_topics(call, group) if group.group_id in all_topics else group.topics for group in groups
        ]
        for group, topics in zip(groups, visible, strict=True):
            group.topics = [*topics, *denied_topics.get(group.group_id, ())]
        response.groups.extend(denied)
        return response

    call.amend = amend


def _describable_topics(
    call: Call[BrokerNode], group: offset_fetch.OffsetFetchResponseGroup
) -> list[offset_fetch.OffsetFetchResponseTopics]:
    names = [resolve_topic_name(call, topic.name, topic.topic_id) or "" for topic in group.topics]
    describable = filter_allowed(call, Operation.DESCRIBE, ResourceType.TOPIC, names)
    return [topic for topic, name in zip(group.topics, names, strict=True) if name in describable]


def _take_denied_topics(
    call: Call[BrokerNode], group: offset_fetch.OffsetFetchRequestGroup
) -> list[offset_fetch.OffsetFetchResponseTopics]:
    group.topics, denied = split_allowed(
        call, Operation.DESCRIBE, ResourceType.TOPIC, group.topics or [], partial(topic_name, call)
    )
    return [
        offset_fetch.OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                offset_fetch.OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=_NO_OFFSET, error_code=TOPIC_DENIED
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in denied
    ]


_filter_all_topics = ResultFilter(
    operation=Operation.DESCRIBE, resource_type=ResourceType.TOPIC, results="topics", name_of=name_field
)

_guard_topics_of_group = ItemGuard(
    operation=Operation.DESCRIBE,
    resource_type=ResourceType.TOPIC,
    items="topics",
    results="topics",
    deny=lambda topic: offset_fetch.OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            offset_fetch.OffsetFetchResponsePartition(
                partition_index=index, committed_offset=_NO_OFFSET, error_code=TOPIC_DENIED
            )
            for index in topic.partition_indexes
        ],
    ),
)

guard_describe_groups = ItemGuard(
    operation=Operation.DESCRIBE,
    resource_type=ResourceType.GROUP,
    items="groups",
    name_of=item_itself,
    results="groups",
    deny=lambda group_id: describe_groups.DescribedGroup(group_id=group_id, error_code=GROUP_DENIED),
)

guard_list_groups = ResultFilter(
    exempt=Operation.DESCRIBE,
    operation=Operation.DESCRIBE,
    resource_type=ResourceType.GROUP,
    results="groups",
    name_of=lambda _, group: str(group.group_id),
    log_if_denied=False,
)

guard_delete_groups = ItemGuard(
    operation=Operation.DELETE,
    resource_type=ResourceType.GROUP,
    items="groups_names",
    name_of=item_itself,
    results="results",
    deny=lambda group_id: delete_groups.DeletableGroupResult(group_id=group_id, error_code=GROUP_DENIED),
)

guard_offset_delete = ItemGuard(
    requires=(of_group(Operation.DELETE),),
    operation=Operation.READ,
    resource_type=ResourceType.TOPIC,
    items="topics",
    results="topics",
    deny=lambda topic: offset_delete.OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            offset_delete.OffsetDeleteResponsePartition(
                partition_index=partition.partition_index, error_code=TOPIC_DENIED
            )
            for partition in topic.partitions
        ],
    ),
)


def guard_group_heartbeat(call: Call[BrokerNode], request: ConsumerGroupHeartbeatRequest) -> None:
    """Require READ on the group, and DESCRIBE on every subscribed topic."""
    require_group(call, Operation.READ, request.group_id)
    names = set(request.subscribed_topic_names or ())
    if len(filter_allowed(call, Operation.DESCRIBE, ResourceType.TOPIC, names)) < len(names):
        raise authorization_error(ResourceType.TOPIC)


def guard_consumer_group_describe(
    call: Call[BrokerNode], request: consumer_group_describe.ConsumerGroupDescribeRequest
) -> None:
    """Require DESCRIBE on each group, and on all its topics."""
    _guard_group_describe(call, request, consumer_group_describe.DescribedGroup)


def guard_share_group_describe(call: Call[BrokerNode], request: share_group_describe.ShareGroupDescribeRequest) -> None:
    """Require DESCRIBE on each group, and on all its topics."""
    _guard_group_describe(call, request, share_group_describe.DescribedGroup)


def _guard_group_describe(call: Call[BrokerNode], request: Any, described_group: Any) -> None:
    request.group_ids, denied_ids = split_allowed(call, Operation.DESCRIBE, ResourceType.GROUP, request.group_ids, str)
    denied = [described_group(group_id=group_id, error_code=GROUP_DENIED) for group_id in denied_ids]

    def amend(response: Any) -> Any:
        for index, group in enumerate(response.groups):
            names = {name for member in group.members for name in _topics_of(member)}
            if len(filter_allowed(call, Operation.DESCRIBE, ResourceType.TOPIC, names)) < len(names):
                response.groups[index] = described_group(
                    group_id=group.group_id,
                    error_code=TOPIC_DENIED,
                    error_message="The group has described topic(s) that the client is not authorized to describe.",
                )
        response.groups.extend(denied)
        return response

    call.amend = amend


def _topics_of(member: Any) -> set[str]:
    names = set(member.subscribed_topic_names)
    for assignment in (member.assignment, getattr(member, "target_assignment", None)):
        if assignment is not None:
            names |= {partition.topic_name for partition in assignment.topic_partitions}
    return names


def guard_describe_share_group_offsets(
    call: Call[BrokerNode], request: describe_share_group_offsets.DescribeShareGroupOffsetsRequest
) -> None:
    """Require DESCRIBE on each group and each topic.

    A request for all topics gets those that the client may describe.
    """
    request.groups, denied_groups = split_allowed(
        call, Operation.DESCRIBE, ResourceType.GROUP, request.groups, lambda group: group.group_id
    )
    denied = [
        describe_share_group_offsets.DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, error_code=GROUP_DENIED
        )
        for group in denied_groups
    ]
    all_topics = {group.group_id for group in request.groups if group.topics is None}
    denied_topics: dict[str, list[describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic]] = {}
    for group in request.groups:
        if group.topics is not None:
            group.topics, unseen = split_allowed(
                call, Operation.DESCRIBE, ResourceType.TOPIC, group.topics, lambda topic: topic.topic_name
            )
            denied_topics[group.group_id] = [_deny_share_topic(topic) for topic in unseen]

    def amend(
        response: describe_share_group_offsets.DescribeShareGroupOffsetsResponse,
    ) -> describe_share_group_offsets.DescribeShareGroupOffsetsResponse:
        visible = [
            split_allowed(call, Operation.DESCRIBE, ResourceType.TOPIC, group.topics, lambda topic: topic.topic_name)[0]
            if group.group_id in all_topics
            else group.topics
            for group in response.groups
        ]
        for group, topics in zip(response.groups, visible, strict=True):
            group.topics = topics
            if not group.error_code:
                group.topics.extend(denied_topics.get(group.group_id, ()))
        response.groups.extend(denied)
        return response

    call.amend = amend


def _deny_share_topic(
    topic: describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic,
) -> describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic:
    return describe_share_group_offsets.DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            describe_share_group_offsets.DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=_NO_OFFSET,
                error_code=TOPIC_DENIED,
                error_message="Topic authorization failed.",
            )
            for index in topic.partitions
        ],
    )


guard_alter_share_group_offsets = ItemGuard(
    requires=(of_group(Operation.READ),),
    operation=Operation.READ,
    resource_type=ResourceType.TOPIC,
    items="topics",
    name_of=lambda _, topic: str(topic.topic_name),
    results="responses",
    deny=lambda topic: alter_share_group_offsets.AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            alter_share_group_offsets.AlterShareGroupOffsetsResponsePartition(
                partition_index=partition.partition_index,
                error_code=TOPIC_DENIED,
                error_message="Topic authorization failed.",
            )
            for partition in topic.partitions
        ],
    ),
)

guard_delete_share_group_offsets = ItemGuard(
    requires=(of_group(Operation.DELETE),),
    operation=Operation.READ,
    resource_type=ResourceType.TOPIC,
    items="topics",
    name_of=lambda _, topic: str(topic.topic_name),
    results="responses",
    deny=lambda topic: delete_share_group_offsets.DeleteShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, error_code=TOPIC_DENIED, error_message="Topic authorization failed."
    ),
)


def guard_add_partitions(call: Call[BrokerNode], request: add_partitions_to_txn.AddPartitionsToTxnRequest) -> None:
    """Require WRITE on the transactional id and on all topics, or add none; from v4 on, require CLUSTER_ACTION."""
    if call.version >= 4:
        require_cluster(call, Operation.CLUSTER_ACTION)
        return
    require_transactional_id(call, Operation.WRITE, request.v3_and_below_transactional_id)
    topics = request.v3_and_below_topics
    writable = filter_allowed(call, Operation.WRITE, ResourceType.TOPIC, (topic.name for topic in topics))
    if all(topic.name in writable for topic in topics):
        return
    results = [
        add_partitions_to_txn.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                add_partitions_to_txn.AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=OperationNotAttempted.code if topic.name in writable else TOPIC_DENIED,
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
    request.v3_and_below_topics = []
    response = add_partitions_to_txn.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    call.amend = lambda _: response


guard_add_offsets = all_of(of_transactional_id(Operation.WRITE), of_group(Operation.READ))

guard_end_txn = of_transactional_id(Operation.WRITE)


def guard_write_txn_markers(call: Call[BrokerNode], request: Any) -> None:
    """Require ALTER or CLUSTER_ACTION on the cluster."""
    if not is_allowed(call, Operation.ALTER, ResourceType.CLUSTER, log_if_denied=False):
        require_cluster(call, Operation.CLUSTER_ACTION)


guard_txn_offset_commit = ItemGuard(
    requires=(of_transactional_id(Operation.WRITE), of_group(Operation.READ)),
    operation=Operation.READ,
    resource_type=ResourceType.TOPIC,
    items="topics",
    results="topics",
    deny=lambda topic: txn_offset_commit.TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            txn_offset_commit.TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=TOPIC_DENIED
            )
            for partition in topic.partitions
        ],
    ),
)


def guard_describe_transactions(
    call: Call[BrokerNode], request: describe_transactions.DescribeTransactionsRequest
) -> None:
    """Require DESCRIBE on each transactional id, and leave out the topics that the client may not describe."""
    request.transactional_ids, denied_ids = split_allowed(
        call, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, request.transactional_ids, str
    )
    code = TransactionalIdAuthorizationFailed.code
    denied = [
        describe_transactions.TransactionState(transactional_id=transactional_id, error_code=code)
        for transactional_id in denied_ids
    ]

    def amend(
        response: describe_transactions.DescribeTransactionsResponse,
    ) -> describe_transactions.DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics, _ = split_allowed(
                call, Operation.DESCRIBE, ResourceType.TOPIC, state.topics, lambda topic: topic.topic
            )
        response.transaction_states.extend(denied)
        return response

    call.amend = amend


guard_list_transactions = ResultFilter(
    operation=Operation.DESCRIBE,
    resource_type=ResourceType.TRANSACTIONAL_ID,
    results="transaction_states",
    name_of=lambda _, state: str(state.transactional_id),
)
