"""Log lines about brokers and leaders, which the active controller writes when their records are committed."""

import logging
from collections.abc import Iterable
from typing import Final

from ottla.metadata.image.changes import Changes, PartitionChange
from ottla.metadata.image.values import NO_LEADER, Broker, LeaderRecovery

logger = logging.getLogger(__name__)

_MAX_NAMED: Final = 5
"""The most partitions that one line names: fencing a broker may elect thousands of leaders."""


def log_cluster_events(changes: Changes) -> None:
    """Log broker registrations, fencing, controlled shutdowns and leader elections, each once."""
    for change in changes.brokers:
        _log_broker(change.key, change.old, change.new)
    elected: list[PartitionChange] = []
    leaderless: list[PartitionChange] = []
    for partition_change in changes.partitions:
        old, new = partition_change.old, partition_change.new
        if old is None or new is None or old.leader == new.leader:
            continue
        if new.leader == NO_LEADER:
            leaderless.append(partition_change)
        elif old.leader_recovery == LeaderRecovery.RECOVERED and new.leader_recovery == LeaderRecovery.RECOVERING:
            logger.warning(
                "unclean leader election of %s-%d: broker %d leads with leader epoch %d and may lack committed records",
                partition_change.topic.name,
                partition_change.number,
                new.leader,
                new.leader_epoch,
            )
        else:
            elected.append(partition_change)
    if elected:
        logger.info("elected new leaders of %d partitions: %s", len(elected), _name(elected))
    if leaderless:
        logger.warning("%d partitions have no leader: %s", len(leaderless), _name(leaderless))


def _log_broker(broker_id: int, old: Broker | None, new: Broker | None) -> None:
    if new is None:
        logger.info("broker %d is unregistered", broker_id)
        return
    if old is None or old.epoch != new.epoch:
        logger.info("broker %d is registered with epoch %d", broker_id, new.epoch)
    if old is not None and not old.fenced and new.fenced:
        logger.info("broker %d is fenced", broker_id)
    elif (old is None or old.fenced) and not new.fenced:
        logger.info("broker %d is unfenced", broker_id)
    if new.in_controlled_shutdown and not (old is not None and old.in_controlled_shutdown):
        logger.info("broker %d is in controlled shutdown", broker_id)


def _name(changes: Iterable[PartitionChange]) -> str:
    named = [
        f"{change.topic.name}-{change.number} (broker {change.old.leader} to {change.new.leader})"
        if change.new.leader != NO_LEADER
        else f"{change.topic.name}-{change.number}"
        for change in changes
        if change.old is not None and change.new is not None
    ]
    suffix = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    return ", ".join(named[:_MAX_NAMED]) + suffix
