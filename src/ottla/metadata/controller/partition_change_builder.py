"""Builds the PartitionChangeRecord that brings a partition to a target state.

Every change of a partition goes through this module, so these rules always hold:
- A reassignment completes when its adding replicas are in sync.
- The leader stays if it can lead. Otherwise the first replica that can lead and is in the ISR, or in the ELR if the ISR
  is empty, is elected; otherwise the last known leader; otherwise, if allowed, any active replica (unclean election).
- The leader epoch rises when the leader changes or a replica is removed, which fences requests from before.
- Below min.insync.replicas, a replica that leaves the ISR cleanly becomes an eligible leader replica (KIP-966).
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
    """The replicas that a change may elect as leader."""

    ONLINE = "an in-sync replica"
    PREFERRED = "the preferred leader if it is in sync, otherwise an in-sync replica"
    UNCLEAN = "an in-sync replica, otherwise any active replica"


@dataclass(slots=True, kw_only=True)
class Target:
    """The target state of a partition. None leaves a field unchanged."""

    isr: Iterable[int] | None = None
    replicas: Iterable[int] | None = None
    removing: Iterable[int] | None = None
    adding: Iterable[int] | None = None
    recovery: int | None = None
    directories: Mapping[int, bytes] | None = None
    unclean_shutdown: int | None = None
    """A broker that may have lost unflushed records, and so cannot be an eligible leader replica."""


def build_partition_change(
    view: ControllerView,
    topic_partition: TopicPartition,
    target: Target,
    *,
    election: Election = Election.ONLINE,
    may_lead: MayLead | None = None,
) -> PartitionChangeRecord | None:
    """Return the record that brings a partition to its target, or None if nothing changes.

    `may_lead` replaces the check that a broker is active, for a broker whose state is about to change.
    """
    return PartitionChangeBuilder(view, topic_partition, target, election, may_lead or view.is_active).build()


class PartitionChangeBuilder:
    """The change of one partition. Fencing a broker creates tens of thousands of these, so keep them cheap."""

    def __init__(
        self,
        view: ControllerView,
        topic_partition: TopicPartition,
        target: Target,
        election: Election,
        may_lead: MayLead,
    ) -> None:
        old = topic_partition.partition
        self.view = view
        self.topic = topic_partition.topic
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
        self.record = PartitionChangeRecord(topic_id=topic_partition.topic.id, partition_id=topic_partition.number)

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
        return self.record if _has_changes(self.record) else None

    def _complete_reassignment(self) -> None:
        """Complete a reassignment when all adding replicas are in sync.

        If it removes more replicas than it adds, all remaining replicas must be in sync.
        """
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
        # Kafka 4.3 also keeps replicas that a reassignment removed. If they came back empty, they could be elected.
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
        """Return the leader to elect, and whether it may lack committed records."""
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
        """Whether the last known leader, the best guess without eligible leader replicas, can be elected."""
        last_known = self.old.last_known_elr
        return (
            self.view.elr_enabled
            and not self.elr
            and not self.isr
            and len(last_known) == 1
            and last_known[0] in self.replicas
            and self._may_lead(last_known[0])
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
        # Without ELR the last member stays in the ISR: no other field records which replica has the data.
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
            assigned = dict(zip(self.old.replicas, self.old.directories, strict=True)) | dict(self.moved or {})
            directories = [assigned.get(replica) or default(replica) for replica in self.replicas]
            if tuple(directories) != self.old.directories:
                self.record.directories = directories
        if replicas_change:
            self.record.replicas = self.replicas
        if tuple(self.removing) != self.old.removing:
            self.record.removing_replicas = self.removing
        if tuple(self.adding) != self.old.adding:
            self.record.adding_replicas = self.adding


def _has_changes(record: PartitionChangeRecord) -> bool:
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
