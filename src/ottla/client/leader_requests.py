"""Sends requests about partitions to their leaders: one per node, retrying the partitions that failed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.metadata import Partition, TopicPartition, partition_label
from ottla.client.retries import Deadline, add_location, backoff_s, is_transient
from ottla.protocol.errors import ApiError

W = TypeVar("W")
R = TypeVar("R")

PartitionQueries: TypeAlias = Mapping[TopicPartition, tuple[Partition, W]]
PartitionAnswers: TypeAlias = Mapping[TopicPartition, R | ApiError]


async def ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, W],
    ask: Callable[[int, PartitionQueries[W]], Awaitable[PartitionAnswers[R]]],
) -> dict[TopicPartition, R]:
    """Return the answer of each partition's leader, following leader changes. Raise the first permanent error."""
    deadline = Deadline(cluster.timeout_s)
    results: dict[TopicPartition, R] = {}
    attempts = 0
    while True:
        missing = {key: query for key, query in wanted.items() if key not in results}
        answers = await _ask_once(cluster, missing, ask)
        errors = {key: answer for key, answer in answers.items() if isinstance(answer, ApiError)}
        results.update({key: answer for key, answer in answers.items() if not isinstance(answer, ApiError)})
        if not errors:
            return results
        for key, error in errors.items():
            cluster.forget(key[0])
            if not error.retriable:
                raise add_location(error, partition_label(*key))
        pause_s = backoff_s(attempts)
        if pause_s > deadline.left_s:
            key, error = next(iter(errors.items()))
            raise add_location(error, partition_label(*key))
        attempts += 1
        await asyncio.sleep(pause_s)


async def _ask_once(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, W],
    ask: Callable[[int, PartitionQueries[W]], Awaitable[PartitionAnswers[R]]],
) -> dict[TopicPartition, R | ApiError]:
    answers: dict[TopicPartition, R | ApiError] = {}
    by_node: dict[int, dict[TopicPartition, tuple[Partition, W]]] = {}
    for key, query in wanted.items():
        try:
            leader = await cluster.leader_of(*key)
        except ApiError as error:
            if not is_transient(error):
                raise
            answers[key] = error
        else:
            by_node.setdefault(leader.leader, {})[key] = leader, query
    for answer in await asyncio.gather(*(_ask_node(node, part, ask) for node, part in by_node.items())):
        answers.update(answer)
    return answers


async def _ask_node(
    node: int, wanted: PartitionQueries[W], ask: Callable[[int, PartitionQueries[W]], Awaitable[PartitionAnswers[R]]]
) -> PartitionAnswers[R]:
    try:
        return await ask(node, wanted)
    except ApiError as error:
        return dict.fromkeys(wanted, error)
