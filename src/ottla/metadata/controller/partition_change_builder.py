"""One partition's change: from what it should become to the record that says so.

Every change of a partition is made here, so that these hold whatever asked for it:
- a reassignment is completed when its new replicas are in sync
- a leader that may go on leading stays; else the first replica of the ISR that can lead, or of the ELR if the ISR is
  empty; else the last known leader; else, where allowed, any replica that is up (an unclean election)
- the leader epoch rises when the leader changes and when a replica goes, so that nobody acts on what was
- below min.insync.replicas, who leaves the ISR cleanly stays eligible to lead (KIP-966)
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ottla.metadata.controller.view import ControllerView, has_online_directory
from ottla.metadata.image.image import TopicPartition
from ottla.metadata.image.partition_records import LEADER_UNCHANGED, RECOVERY_UNCHANGED
from ottla.metadata.image.values import NO_LEADER, LeaderRecovery
from ottla.protocol.messages.records.metadata_records import PartitionChangeRecord
from ottla.protocol.metadata_versions import NO_EPOCH_BUMP_ON_ISR_SHRINK

MayLead: TypeAlias = Callable[[int], bool]


class Election(Enum):
    """Whom a change may make leader."""

    ONLINE = "whoever is in sync"
    PREFERRED = "the first replica if it is in sync"
    UNCLEAN = "whoever is in sync, or anyone if nobody is"


@dataclass(slots=True, kw_only=True)
class Target:
    """What a partition should become; None leaves it as it is."""

    isr: Iterable[int] | None = None
    replicas: Iterable[int] | None = None
    removing: Iterable[int] | None = None
    adding: Iterable[int] | None = None
    recovery: int | None = None
    directories: Mapping[int, bytes] | None = None
    unclean_shutdown: int | None = None
    """A broker that may have lost what it had not written; it cannot be eligible."""


def build_partition_change(
    view: ControllerView,
    placed: TopicPartition,
    target: Target,
    *,
    election: Election = Election.ONLINE,
    may_lead: MayLead | None = None,
) -> PartitionChangeRecord | None:
    """The record that brings a partition to its target; None if nothing changes. `may_lead` replaces the check that a
    broker is active, for when the image does not show yet what is about to happen to one."""
    return PartitionChangeBuilder(view, placed, target, election, may_lead or view.is_active).build()


class PartitionChangeBuilder:
    """A partition under change. A broker that goes makes tens of thousands of these."""

    def __init__(
        self, view: ControllerView, placed: TopicPartition, target: Target, election: Election, may_lead: MayLead
    ) -> None:
        old = placed.partition
        self.view = view
        self.topic = placed.topic
        self.old = old
        self.election = election
        self._broker_may_lead = may_lead
        self.isr = list(old.isr if target.isr is None else target.isr)
        self.replicas = list(old.replicas if target.replicas is None else target.replicas)
        self.removing = list(old.removing if target.removing is None else target.removing)
        self.adding = list(old.adding if target.adding is None else target.adding)
        self.recovery = old.leader_recovery if target.recovery is None else target.recovery
        self.moved = target.directories
        self.unclean_shutdown = target.unclean_shutdown
        self.elr = list(old.elr)
        self.record = PartitionChangeRecord(topic_id=placed.topic.id, partition_id=placed.number)

    def build(self) -> PartitionChangeRecord | None:
        self._complete_reassignment()
        self._keep_eligible()
        self._elect()
        self._bump_epoch_if_replicas_go()
        self._write_eligible()
        self._write_isr()
        self._write_last_known_leader()
        self._write_assignment()
        if self.recovery != self.old.leader_recovery:
            self.record.leader_recovery_state = self.recovery
        return self.record if _says_something(self.record) else None

    def _complete_reassignment(self) -> None:
        """When all who come are in sync, those who go may; but if fewer come than go, all who stay must be in sync."""
        if not self.removing and not self.adding:
            return
        isr = [replica for replica in self.isr if replica not in self.removing]
        replicas = [replica for replica in self.replicas if replica not in self.removing]
        if self.removing and (not isr or not replicas):
            return
        needed = replicas if len(self.adding) < len(self.removing) else self.adding
        if {*self.adding, *needed} <= {*isr}:
            self.isr, self.replicas, self.removing, self.adding = isr, replicas, [], []

    def _keep_eligible(self) -> None:
        if not self.view.elr_enabled:
            return
        if len(self.isr) >= self.view.min_isr(self.topic):
            self.elr = []
            return
        # Kafka 4.3 keeps replicas here that a reassignment removed; coming back empty, they could lead. Not so here.
        self.elr = [
            replica
            for replica in sorted({*self.elr, *self.old.isr})
            if replica not in self.isr and replica in self.replicas and replica != self.unclean_shutdown
        ]

    def _may_lead(self, replica: int) -> bool:
        if not self._broker_may_lead(replica):
            return False
        broker, directory = self.view.image.brokers.get(replica), self.old.directory_of(replica)
        return broker is not None and directory is not None and has_online_directory(broker, directory)

    def _is_valid(self, replica: int) -> bool:
        in_sync = replica in self.isr or (not self.isr and replica in self.elr)
        return in_sync and self._may_lead(replica)

    def _choose_leader(self) -> tuple[int, bool]:
        """The leader to be, and whether it may lack what was committed."""
        if self.election is Election.PREFERRED and self._is_valid(self.replicas[0]):
            return self.replicas[0], False
        if self._is_valid(self.old.leader):
            return self.old.leader, False
        for replica in self.replicas:
            if self._is_valid(replica):
                return replica, False
        if self._can_recover_last_leader():
            return self.old.last_known_elr[0], True
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self._may_lead(replica):
                    return replica, True
        return NO_LEADER, False

    def _can_recover_last_leader(self) -> bool:
        """Once all eligible ones are lost, the one that led last is the best guess."""
        known = self.old.last_known_elr
        return (
            self.view.elr_enabled
            and not self.elr
            and not self.isr
            and len(known) == 1
            and known[0] in self.replicas
            and self._may_lead(known[0])
        )

    def _elect(self) -> None:
        leader, unclean = self._choose_leader()
        if leader == self.old.leader:
            return
        if leader in self.elr:
            self.isr = [leader]
            self.elr.remove(leader)
        self.record.leader = leader
        if unclean:
            self.record.isr = [leader]
            if self.old.leader_recovery != LeaderRecovery.RECOVERING:
                self.record.leader_recovery_state = LeaderRecovery.RECOVERING

    def _bump_epoch_if_replicas_go(self) -> None:
        if self.record.leader == LEADER_UNCHANGED and not set(self.old.replicas).issubset(self.replicas):
            self.record.leader = self.old.leader

    def _write_eligible(self) -> None:
        unclean = self.record.isr is not None
        if unclean or not self.view.elr_enabled:
            self.elr = []
        if tuple(self.elr) != self.old.elr:
            self.record.eligible_leader_replicas = self.elr

    def _write_isr(self) -> None:
        # Without ELR the last of the ISR stays listed: nothing else would remember who has the data.
        may_empty = self.view.elr_enabled
        if self.record.isr is None and (self.isr or may_empty) and tuple(self.isr) != self.old.isr:
            self.record.isr = self.isr
        # Brokers before 3.6 miss an ISR that shrinks unless the leader epoch rises (KAFKA-15021).
        if self.view.metadata_version < NO_EPOCH_BUMP_ON_ISR_SHRINK and self.record.leader == LEADER_UNCHANGED:
            shrunk = self.record.isr is not None and not set(self.old.isr) <= set(self.record.isr)
            if shrunk:
                self.record.leader = self.old.leader

    def _write_last_known_leader(self) -> None:
        if not self.view.elr_enabled:
            return
        loses_leader = self.record.leader == NO_LEADER and self.old.leader != NO_LEADER
        if loses_leader and not self.old.last_known_elr:
            self.record.last_known_elr = [self.old.leader]
        elif self.record.leader >= 0 and self.old.last_known_elr:
            self.record.last_known_elr = []

    def _write_assignment(self) -> None:
        replicas_change = tuple(self.replicas) != self.old.replicas
        if self.view.assigns_directories and (replicas_change or self.moved):
            default = self.view.default_directory
            known = dict(zip(self.old.replicas, self.old.directories, strict=True)) | dict(self.moved or {})
            directories = [known.get(replica) or default(replica) for replica in self.replicas]
            if tuple(directories) != self.old.directories:
                self.record.directories = directories
        if replicas_change:
            self.record.replicas = self.replicas
        if tuple(self.removing) != self.old.removing:
            self.record.removing_replicas = self.removing
        if tuple(self.adding) != self.old.adding:
            self.record.adding_replicas = self.adding


def _says_something(record: PartitionChangeRecord) -> bool:
    return (
        record.leader != LEADER_UNCHANGED
        or record.isr is not None
        or record.replicas is not None
        or record.removing_replicas is not None
        or record.adding_replicas is not None
        or record.eligible_leader_replicas is not None
        or record.last_known_elr is not None
        or record.directories is not None
        or record.leader_recovery_state != RECOVERY_UNCHANGED
    )
