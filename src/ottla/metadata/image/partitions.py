"""How records make and change a partition."""

from collections.abc import Sequence
from typing import Any

from ottla.metadata.image.errors import ReplayError
from ottla.metadata.image.values import DIRECTORY_MIGRATING, LeaderRecovery, Partition
from ottla.protocol.messages.records.metadata_records import PartitionChangeRecord, PartitionRecord

LEADER_UNCHANGED = -2
RECOVERY_UNCHANGED = -1
_RECOVERIES = frozenset(LeaderRecovery)

_new = tuple.__new__
"""Passes over the constructor, which is half the cost of a named tuple."""


def new_partition(record: PartitionRecord, known: dict[Any, Any]) -> Partition:
    """The partition that a record makes. Many are alike, or have the same replicas: what is `known` already serves all
    of them."""
    told = (
        tuple(record.replicas),
        tuple(record.isr),
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        tuple(record.directories),
        record.leader_recovery_state,
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
    )
    found: Partition | None = known.get(told)
    if found is None:
        found = known[told] = _shared(_new(Partition, told), known, record)
    return found


def _shared(told: Partition, known: dict[Any, Any], record: PartitionRecord) -> Partition:
    """A partition as a record tells it, checked, and with what it has in common with others."""
    replicas, isr, removing, adding, leader, leader_epoch, epoch, directories, recovery, elr, last_elr = told
    replicas = known.setdefault(replicas, replicas)
    isr = replicas if isr == replicas else known.setdefault(isr, isr)
    directories = _directories(directories, len(replicas), record)
    directories = known.setdefault(directories, directories)
    _check_recovery(recovery)
    made = (replicas, isr, removing, adding, leader, leader_epoch, epoch, directories, recovery, elr, last_elr)
    return _new(Partition, made)


def changed_partition(old: Partition, record: PartitionChangeRecord) -> Partition:
    """What a change makes of a partition: fields that the record does not name stay.

    The partition epoch rises with every change; the leader epoch whenever a leader is named, be it the same or none.
    """
    replicas = old.replicas if record.replicas is None else tuple(record.replicas)
    leader, leader_epoch = old.leader, old.leader_epoch
    if record.leader != LEADER_UNCHANGED:
        leader, leader_epoch = record.leader, leader_epoch + 1
    recovery = old.leader_recovery
    if record.leader_recovery_state != RECOVERY_UNCHANGED:
        recovery = record.leader_recovery_state
        _check_recovery(recovery)
    directories = old.directories
    if record.directories is not None or record.replicas is not None:
        given = old.directories if record.directories is None else record.directories
        directories = _directories(given, len(replicas), record)
    changed = (
        replicas,
        old.isr if record.isr is None else tuple(record.isr),
        old.removing if record.removing_replicas is None else tuple(record.removing_replicas),
        old.adding if record.adding_replicas is None else tuple(record.adding_replicas),
        leader,
        leader_epoch,
        old.partition_epoch + 1,
        directories,
        recovery,
        old.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
        old.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
    )
    return _new(Partition, changed)


def without_elr(old: Partition) -> Partition:
    """A partition whose eligible leader replicas are forgotten; the same one if it had none."""
    if not old.elr and not old.last_known_elr:
        return old
    return old._replace(elr=(), last_known_elr=(), partition_epoch=old.partition_epoch + 1)


def _directories(given: Sequence[bytes], replicas: int, record: object) -> tuple[bytes, ...]:
    """As many directories as replicas. None at all, or only unknown ones, fit any number of replicas."""
    if given.count(DIRECTORY_MIGRATING) == len(given):
        return (DIRECTORY_MIGRATING,) * replicas
    if len(given) != replicas:
        raise ReplayError(f"{len(given)} directories for {replicas} replicas: {record}")
    return tuple(given)


def _check_recovery(value: int) -> None:
    if value not in _RECOVERIES:
        raise ReplayError(f"no leader recovery state {value}")
