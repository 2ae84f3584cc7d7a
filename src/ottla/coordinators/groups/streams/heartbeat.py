"""StreamsGroupHeartbeat: a member joins, stays or leaves, and gets its tasks.

A heartbeat has up to five effects. It writes the member and its topology, configures the topology with the existing
topics, bumps the group epoch if any of this changed, computes a new target if the target is of an older epoch, and
takes the member one step towards it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.epoch_group import RefreshDeadline
from ottla.coordinators.groups.metadata_hash import topics_hash
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.streams.configuring import ConfiguredTopology, configure
from ottla.coordinators.groups.streams.endpoints import endpoints_of
from ottla.coordinators.groups.streams.group import NOT_VALIDATED, StreamsGroup
from ottla.coordinators.groups.streams.joining import (
    GroupLookup,
    find_member,
    get_or_create_group,
    reported_tasks,
    updated_member,
)
from ottla.coordinators.groups.streams.leaving import leave
from ottla.coordinators.groups.streams.member import JOINING, LEAVING, LEAVING_STATIC, MemberState
from ottla.coordinators.groups.streams.partition_counts import StreamsStatus
from ottla.coordinators.groups.streams.reconciling import Reported, reconcile
from ottla.coordinators.groups.streams.records import (
    current_assignment_record,
    epoch_record,
    member_record,
    topology_record,
)
from ottla.coordinators.groups.streams.settings import (
    assignment_interval_ms,
    assignment_settings,
    heartbeat_interval_ms,
    initial_delay_ms,
    session_timeout_ms,
)
from ottla.coordinators.groups.streams.targets import compute_targets, target_records
from ottla.coordinators.groups.streams.tasks import NO_TASKS, TaskEpochs, TaskIds, Tasks
from ottla.coordinators.groups.streams.timer_keys import Timers, initial_delay_timer, rebalance_timer
from ottla.coordinators.groups.streams.topology import Topology, read_topology, topology_value
from ottla.coordinators.groups.timers import session_timer
from ottla.protocol.errors import InvalidRequest, UnknownServerError
from ottla.protocol.messages.rpc import streams_group_heartbeat as messages
from ottla.protocol.messages.rpc.create_topics import CreatableTopic
from ottla.protocol.messages.rpc.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from ottla.storage.state_machine.decision import Decision
from ottla.storage.state_machine.entries import Stored


class HeartbeatReply(NamedTuple):
    """The response to a heartbeat, and the internal topics to create."""

    response: StreamsGroupHeartbeatResponse
    missing: Sequence[CreatableTopic] = ()


def heartbeat(state: GroupsState, request: StreamsGroupHeartbeatRequest, context: Context) -> Decision[HeartbeatReply]:
    """Decide on a heartbeat that passed `check_heartbeat`."""
    if request.member_epoch in (LEAVING, LEAVING_STATIC):
        leaving = leave(state, request)
        return Decision(leaving.records, HeartbeatReply(leaving.reply), state=leaving.state, timers=leaving.timers)
    lookup = get_or_create_group(state, request.group_id, context, is_joining=request.member_epoch == JOINING)
    transition = _MemberTransition(state, lookup, request, context)
    transition.update_member()
    transition.configure()
    transition.update_epoch()
    transition.delay()
    transition.reconcile(*transition.update_target())
    return transition.to_decision()


class _MemberTransition:
    """The changes that one heartbeat causes, collected for one decision."""

    def __init__(
        self, state: GroupsState, lookup: GroupLookup, request: StreamsGroupHeartbeatRequest, context: Context
    ) -> None:
        self.state = state
        self.is_existing = lookup.is_existing
        self.group = lookup.group
        """The group before the heartbeat, with changes that have no record."""
        self.request = request
        self.context = context
        self.reported: Reported = reported_tasks(request)
        self.before = find_member(self.group, request, self.reported)
        self.member = updated_member(self.before, request, context)
        self.records: list[Stored] = list(lookup.records)
        self.timers: Timers = []
        self.statuses: list[messages.Status] = []
        self.epoch = self.group.epoch
        self.metadata_hash = self.group.metadata_hash
        self.validated_epoch = NOT_VALIDATED
        self.settings = assignment_settings(self.group.id, context)
        self.bumps = False
        self.topology = self.group.topology
        self.configured: ConfiguredTopology

    def update_member(self) -> None:
        """Write the member, and its topology if the group has none."""
        if self.member != self.before:
            self.records.append(member_record(self.group.id, self.member))
            self.bumps = True
        current = self.group.topology
        if self.request.topology is not None:
            value = topology_value(self.request.topology)
            requested = read_topology(value)
            if current is None:
                self.records.append(topology_record(self.group.id, value))
                self.topology = requested
            elif current.epoch <= requested.epoch and current != requested:
                raise InvalidRequest("Topology updates are not supported yet.")
        elif current is None:
            raise UnknownServerError(f"streams group {self.group.id} has no topology")
        if current is not None and self.member.topology_epoch < current.epoch:
            self._add_status(
                StreamsStatus.STALE_TOPOLOGY,
                f"The member's topology epoch {self.member.topology_epoch} is behind the group's topology epoch "
                f"{current.epoch}.",
            )

    def configure(self) -> None:
        """Configure the topology, if it or the topics may have changed."""
        group, image, topology = self.group, self.context.image, self._topology
        configured = group.configured
        is_new = group.topology is None
        if is_new or configured is None or group.must_refresh(self.context.now_ms):
            self.metadata_hash = topics_hash(topology.required_topics, image)
            if self.metadata_hash != group.metadata_hash:
                self.bumps = True
                is_new = True
            if is_new or configured is None:
                configured = configure(topology, image)
        self.configured = configured
        if configured.is_ready:
            self.validated_epoch = topology.epoch
            self._check_tasks(configured)

    def update_epoch(self) -> None:
        """Bump the group epoch if anything changed that the target depends on."""
        group = self.group
        if self.validated_epoch != group.validated_epoch or self.settings != group.settings:
            self.bumps = True
        refresh = group.refresh_deadline
        if self.bumps:
            self.epoch += 1
            self.records.append(
                epoch_record(group.id, self.epoch, self.metadata_hash, self.validated_epoch, self.settings)
            )
            refresh = RefreshDeadline.after(self.context.now_ms, self.epoch)
        self.group = replace(group, configured=self.configured, refresh_deadline=refresh)

    def delay(self) -> None:
        """Start the initial rebalance delay of an empty group."""
        group, delay_ms = self.group, initial_delay_ms(self.group.id, self.context)
        if group.is_empty and delay_ms > 0 and not group.is_delayed:
            self.group = replace(group, is_delayed=True)
            self.timers.append((initial_delay_timer(group.id), self.context.now_ms + delay_ms))

    def update_target(self) -> tuple[int, Tasks]:
        """Return the target's epoch and the member's part of it; compute a new target if it is due."""
        group = self.group
        if group.is_delayed:
            self._add_status(
                StreamsStatus.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
            )
            return group.target_epoch, NO_TASKS
        if group.target_epoch >= self.epoch:
            return group.target_epoch, group.target_of(self.member.id)
        if not group.may_replace_target(assignment_interval_ms(group.id, self.context), self.context.now_ms):
            self._add_status(
                StreamsStatus.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval."
            )
            return group.target_epoch, group.target_of(self.member.id)
        targets = compute_targets(group, self.configured, self.settings, self.member)
        self.records += target_records(group, targets, self.epoch, self.context.now_ms)
        return self.epoch, targets[self.member.id]

    def reconcile(self, epoch: int, target: Tasks) -> None:
        """Take the member one step towards its target."""
        old = self.member
        if old.is_reconciled_to(epoch):
            return
        new = reconcile(self.group, old, epoch=epoch, target=target, reported=self.reported)
        if new == old:
            return
        self.member = new
        self.records.append(current_assignment_record(self.group.id, new))
        must_revoke = new.state is MemberState.UNREVOKED_TASKS
        until = self.context.now_ms + new.rebalance_timeout_ms if must_revoke else None
        self.timers.append((rebalance_timer(self.group.id, new.id), until))

    def to_decision(self) -> Decision[HeartbeatReply]:
        """Return the collected changes with the reply."""
        context, request, member = self.context, self.request, self.member
        group = self.group
        self.timers.append((session_timer(group.id, member.id), context.now_ms + session_timeout_ms(group.id, context)))
        if request.shutdown_application and group.shutdown_by is None:
            group = replace(group, shutdown_by=member.id)
        response = StreamsGroupHeartbeatResponse(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=heartbeat_interval_ms(group.id, context),
        )
        if request.member_epoch == JOINING or self.before.assigned != member.assigned:
            response.active_tasks = _task_ids(member.assigned.active)
            response.standby_tasks = _task_ids(member.assigned.standby)
            response.warmup_tasks = _task_ids(member.assigned.warmup)
            if member.endpoint is not None:
                group = replace(group, endpoint_epoch=group.endpoint_epoch + 1)
        if group.endpoint_epoch != request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = endpoints_of(group, member, self.configured, context.image)
        if self.is_existing:
            response.endpoint_information_epoch = group.endpoint_epoch
        problem = self.configured.problem
        if problem is not None:
            self._add_status(problem.status, problem.detail)
        if group.shutdown_by is not None:
            self._add_status(
                StreamsStatus.SHUTDOWN_APPLICATION,
                f"Streams group member {group.shutdown_by} encountered a fatal error and requested a shutdown for the "
                "entire application.",
            )
        response.status = self.statuses
        reply = HeartbeatReply(response, self.configured.missing)
        return Decision(self.records, reply, state=self._unrecorded_changes(group), timers=self.timers)

    def _unrecorded_changes(self, group: StreamsGroup) -> GroupsState | None:
        """Return the state with the changes that have no record, or None if there are none.

        Of a new group only the delay is kept, as in Kafka: the second heartbeat configures the topology again.
        """
        if self.is_existing:
            current = self.state.groups[group.id]
            assert isinstance(current, StreamsGroup), "the lookup returned it"
            return None if _unrecorded(group) == _unrecorded(current) else self.state.with_group(group)
        return self.state.with_group(StreamsGroup(group.id, is_delayed=True)) if group.is_delayed else None

    @property
    def _topology(self) -> Topology:
        assert self.topology is not None, "a group has a topology after its first member joined"
        return self.topology

    def _check_tasks(self, configured: ConfiguredTopology) -> None:
        """Raise if the member reports tasks that do not exist."""
        assert configured.subtopologies is not None, "a topology that is ready has subtopologies"
        if self.reported is None:
            return
        for tasks in self.reported:
            for subtopology_id, partitions in tasks.items():
                subtopology = configured.subtopologies.get(subtopology_id)
                if subtopology is None:
                    raise InvalidRequest(f"Subtopology {subtopology_id} does not exist in the topology.")
                for partition in partitions:
                    if not 0 <= partition < subtopology.tasks:
                        raise InvalidRequest(
                            f"Task {partition} for subtopology {subtopology_id} is invalid. Number of tasks for this "
                            f"subtopology: {subtopology.tasks}"
                        )

    def _add_status(self, status: StreamsStatus, detail: str) -> None:
        self.statuses.append(messages.Status(status_code=int(status), status_detail=detail))


def _unrecorded(group: StreamsGroup) -> tuple[object, ...]:
    return id(group.configured), group.refresh_deadline, group.is_delayed, group.shutdown_by, group.endpoint_epoch


def _task_ids(tasks: TaskIds | TaskEpochs) -> list[messages.TaskIds]:
    return [
        messages.TaskIds(subtopology_id=subtopology_id, partitions=sorted(tasks[subtopology_id]))
        for subtopology_id in sorted(tasks)
    ]
