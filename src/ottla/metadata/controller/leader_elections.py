"""ElectLeaders, and the periodic elections of preferred and unclean leaders."""

from collections.abc import Iterable

from ottla.metadata.controller.decision import Decision, decide_atomically, reject_duplicate
from ottla.metadata.controller.partition_change_builder import Election, Target, build_partition_change
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.image import TopicPartition
from ottla.protocol.errors import (
    ApiError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.records.metadata_records import PartitionChangeRecord
from ottla.protocol.messages.rpc.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

MAX_ELECTIONS = 1_000
"""The most elections of one periodic round, so that it does not block the controller."""
_KINDS = {0: Election.PREFERRED, 1: Election.UNCLEAN}


def elect_leaders(view: ControllerView, request: ElectLeadersRequest) -> Decision[ElectLeadersResponse]:
    """Elect preferred leaders, or unclean leaders for partitions without one.

    Without a list the request means all partitions; the response then omits those that need no election.
    """
    election = _KINDS.get(request.election_type)
    if election is None:
        raise InvalidRequest(f"Unknown election type {request.election_type}")
    is_for_all = request.topic_partitions is None
    partitions: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        partitions = [(name, range(len(topic.partitions))) for name, topic in sorted(view.image.topics.items())]
    else:
        partitions = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    records: list[object] = []
    results = []
    seen: set[tuple[str, int]] = set()
    for name, numbers in partitions:
        answers = []
        for number in numbers:
            answer = PartitionResult(partition_id=number, error_message=None)
            try:
                reject_duplicate(seen, name, number)
                records.append(_elect(view, name, number, election))
            except ApiError as error:  # an invalid partition fails alone
                if is_for_all and isinstance(error, ElectionNotNeeded):
                    continue
                answer.error_code, answer.error_message = error.code, error.message
            answers.append(answer)
        results.append(ReplicaElectionResult(topic=name, partition_result=answers))
    bounded = decide_atomically(records, ElectLeadersResponse(replica_election_results=results))
    return Decision(bounded.records, bounded.reply)


def balance_partition_leaders(view: ControllerView) -> Decision[bool]:
    """Elect preferred leaders that can lead (auto.leader.rebalance.enable). The reply says whether more may follow."""
    records: list[object] = []
    for topic_partition in view.image.partitions_not_led_by_preferred():
        if len(records) >= MAX_ELECTIONS:
            break
        record = build_partition_change(view, topic_partition, Target(), election=Election.PREFERRED)
        if record is not None:
            records.append(record)
    return Decision(tuple(records), len(records) >= MAX_ELECTIONS)


def elect_unclean_leaders(view: ControllerView) -> Decision[bool]:
    """Elect unclean leaders where the topic allows it. The reply says whether more may follow."""
    records: list[object] = []
    for topic_partition in view.image.partitions_without_leader():
        if len(records) >= MAX_ELECTIONS:
            break
        if view.allows_unclean_election(topic_partition.topic):
            record = build_partition_change(view, topic_partition, Target(), election=Election.UNCLEAN)
            if record is not None:
                records.append(record)
    return Decision(tuple(records), len(records) >= MAX_ELECTIONS)


def _elect(view: ControllerView, name: str, number: int, election: Election) -> PartitionChangeRecord:
    topic = view.image.topic(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"No such topic as {name}")
    partition = topic.partition(number)
    if partition is None:
        raise UnknownTopicOrPartition(f"No such partition as {name}-{number}")
    preferred = election is Election.PREFERRED
    if partition.leader == partition.preferred_leader if preferred else partition.has_leader:
        raise ElectionNotNeeded
    record = build_partition_change(view, TopicPartition(topic, number, partition), Target(), election=election)
    if record is None:
        raise PreferredLeaderNotAvailable if preferred else EligibleLeadersNotAvailable
    return record
