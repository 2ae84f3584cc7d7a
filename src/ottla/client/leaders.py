"""Asking the leaders of partitions: one request a node, and once more for what was not answered."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.metadata import Partition, TopicPartition, where
from ottla.client.retrying import Deadline, located, passes, wait_s
from ottla.protocol.errors import ApiError

W = TypeVar("W")
R = TypeVar("R")

Wanted: TypeAlias = Mapping[TopicPartition, tuple[Partition, W]]
Answers: TypeAlias = Mapping[TopicPartition, R | ApiError]


async def ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, W],
    ask: Callable[[int, Wanted[W]], Awaitable[Answers[R]]],
) -> dict[TopicPartition, R]:
    """The answer for each partition from its leader, whoever that comes to be; raises the first error that stays."""
    deadline = Deadline(cluster.timeout_s)
    found: dict[TopicPartition, R] = {}
    attempts = 0
    while True:
        left = {key: what for key, what in wanted.items() if key not in found}
        answers = await _ask_once(cluster, left, ask)
        errors = {key: answer for key, answer in answers.items() if isinstance(answer, ApiError)}
        found.update({key: answer for key, answer in answers.items() if not isinstance(answer, ApiError)})
        if not errors:
            return found
        for key, error in errors.items():
            cluster.forget(key[0])
            if not error.retriable:
                raise located(error, where(*key))
        pause_s = wait_s(attempts)
        if pause_s > deadline.left_s:
            key, error = next(iter(errors.items()))
            raise located(error, where(*key))
        attempts += 1
        await asyncio.sleep(pause_s)


async def _ask_once(
    cluster: Cluster, wanted: Mapping[TopicPartition, W], ask: Callable[[int, Wanted[W]], Awaitable[Answers[R]]]
) -> dict[TopicPartition, R | ApiError]:
    answers: dict[TopicPartition, R | ApiError] = {}
    by_node: dict[int, dict[TopicPartition, tuple[Partition, W]]] = {}
    for key, what in wanted.items():
        try:
            leader = await cluster.leader_of(*key)
        except ApiError as error:
            if not passes(error):
                raise
            answers[key] = error
        else:
            by_node.setdefault(leader.leader, {})[key] = leader, what
    for answer in await asyncio.gather(*(_ask_node(node, part, ask) for node, part in by_node.items())):
        answers.update(answer)
    return answers


async def _ask_node(node: int, wanted: Wanted[W], ask: Callable[[int, Wanted[W]], Awaitable[Answers[R]]]) -> Answers[R]:
    try:
        return await ask(node, wanted)
    except ApiError as error:
        return dict.fromkeys(wanted, error)
