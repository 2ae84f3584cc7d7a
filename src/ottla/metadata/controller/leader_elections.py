"""Leaders are elected: as an operator asks, and from time to time where the cluster can do better by itself."""

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
"""In one automatic round, so that it does not hold up the controller."""
_KINDS = {0: Election.PREFERRED, 1: Election.UNCLEAN}


def elect_leaders(view: ControllerView, request: ElectLeadersRequest) -> Decision[ElectLeadersResponse]:
    """Elect the preferred leaders of partitions, or any leader for those without. No list means all partitions, and
    then those that need no election are not mentioned."""
    election = _KINDS.get(request.election_type)
    if election is None:
        raise InvalidRequest(f"Unknown election type {request.election_type}")
    every = request.topic_partitions is None
    asked: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        asked = [(name, range(len(topic.partitions))) for name, topic in sorted(view.image.topics.items())]
    else:
        asked = [(each.topic, each.partitions) for each in request.topic_partitions]
    records: list[object] = []
    results = []
    seen: set[tuple[str, int]] = set()
    for name, numbers in asked:
        answers = []
        for number in numbers:
            answer = PartitionResult(partition_id=number, error_message=None)
            try:
                reject_duplicate(seen, name, number)
                records.append(_elect(view, name, number, election))
            except ApiError as error:  # one bad partition spoils only its own answer
                if every and isinstance(error, ElectionNotNeeded):
                    continue
                answer.error_code, answer.error_message = error.code, error.message
            answers.append(answer)
        results.append(ReplicaElectionResult(topic=name, partition_result=answers))
    bounded = decide_atomically(records, ElectLeadersResponse(replica_election_results=results))
    return Decision(bounded.records, bounded.reply)


def balance_partition_leaders(view: ControllerView) -> Decision[bool]:
    """Give partitions back to their preferred leaders that can lead (auto.leader.rebalance.enable). The reply says
    whether there may be more to do."""
    records: list[object] = []
    for placed in view.image.partitions_not_led_by_preferred():
        if len(records) >= MAX_ELECTIONS:
            break
        record = build_partition_change(view, placed, Target(), election=Election.PREFERRED)
        if record is not None:
            records.append(record)
    return Decision(tuple(records), len(records) >= MAX_ELECTIONS)


def elect_unclean_leaders(view: ControllerView) -> Decision[bool]:
    """Find leaders for partitions without one whose topics put being there above being complete. The reply says whether
    there may be more to do."""
    records: list[object] = []
    for placed in view.image.partitions_without_leader():
        if len(records) >= MAX_ELECTIONS:
            break
        if view.allows_unclean_election(placed.topic):
            record = build_partition_change(view, placed, Target(), election=Election.UNCLEAN)
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
