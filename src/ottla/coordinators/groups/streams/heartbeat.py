"""StreamsGroupHeartbeat: a member comes, stays or goes, and learns what it should run.

One heartbeat does up to five things: it writes down who the member is and which topology it brought, holds the topology
against the topics that there are, raises the group's epoch if anything of this has changed, makes a new target if the
last one is for an older epoch, and takes the member one step further towards its target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.epoch_group import RefreshDeadline
from ottla.coordinators.groups.metadata_hash import topics_hash
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.streams.configuring import Configured, configure
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
from ottla.coordinators.groups.streams.topology import Topology, recorded, topology_of
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
    """The answer to a heartbeat, and the topics that must be made before the group can go on."""

    response: StreamsGroupHeartbeatResponse
    missing: Sequence[CreatableTopic] = ()


def heartbeat(state: GroupsState, request: StreamsGroupHeartbeatRequest, context: Context) -> Decision[HeartbeatReply]:
    """Decide on a heartbeat that was found to be well formed."""
    if request.member_epoch in (LEAVING, LEAVING_STATIC):
        left = leave(state, request)
        return Decision(left.records, HeartbeatReply(left.reply), state=left.state, timers=left.timers)
    found = get_or_create_group(state, request.group_id, context, is_joining=request.member_epoch == JOINING)
    transition = _MemberTransition(state, found, request, context)
    transition.introduce()
    transition.configure()
    transition.update_epoch()
    transition.delay()
    transition.reconcile(*transition.update_target())
    return transition.decision()


class _MemberTransition:
    """One member's word, and all that follows from it. Nothing changes here: it is collected into one decision."""

    def __init__(
        self, state: GroupsState, found: GroupLookup, request: StreamsGroupHeartbeatRequest, context: Context
    ) -> None:
        self.state = state
        self.is_existing = found.is_existing
        self.group = found.group
        """As it was before, but for what is not recorded."""
        self.request = request
        self.context = context
        self.reported: Reported = reported_tasks(request)
        self.before = find_member(self.group, request, self.reported)
        self.member = updated_member(self.before, request, context)
        self.records: list[Stored] = list(found.records)
        self.timers: Timers = []
        self.statuses: list[messages.Status] = []
        self.epoch = self.group.epoch
        self.metadata_hash = self.group.metadata_hash
        self.validated_epoch = NOT_VALIDATED
        self.settings = assignment_settings(self.group.id, context)
        self.bumps = False
        self.topology = self.group.topology
        self.configured: Configured

    def introduce(self) -> None:
        """Write down who the member is, and its topology if the group has none."""
        if self.member != self.before:
            self.records.append(member_record(self.group.id, self.member))
            self.bumps = True
        known = self.group.topology
        if self.request.topology is not None:
            value = recorded(self.request.topology)
            brought = topology_of(value)
            if known is None:
                self.records.append(topology_record(self.group.id, value))
                self.topology = brought
            elif known.epoch <= brought.epoch and known != brought:
                raise InvalidRequest("Topology updates are not supported yet.")
        elif known is None:
            raise UnknownServerError(f"group {self.group.id} has no topology")
        if known is not None and self.member.topology_epoch < known.epoch:
            self._add_status(
                StreamsStatus.STALE_TOPOLOGY,
                f"The member's topology epoch {self.member.topology_epoch} is behind the group's topology epoch "
                f"{known.epoch}.",
            )

    def configure(self) -> None:
        """Hold the topology against the topics, if either may have changed."""
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
        """Raise the group's epoch if anything has changed that a target depends on."""
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
        """Let the first target of a group wait for more members."""
        group, delay_ms = self.group, initial_delay_ms(self.group.id, self.context)
        if group.is_empty and delay_ms > 0 and not group.is_delayed:
            self.group = replace(group, is_delayed=True)
            self.timers.append((initial_delay_timer(group.id), self.context.now_ms + delay_ms))

    def update_target(self) -> tuple[int, Tasks]:
        """The target's epoch and what it gives the member; made anew if the group's epoch is higher, and it is time."""
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

    def decision(self) -> Decision[HeartbeatReply]:
        """All of it."""
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
        """The state with what is not recorded of the group. Of a new one only its delay is kept, as in Kafka."""
        if self.is_existing:
            known = self.state.groups[group.id]
            assert isinstance(known, StreamsGroup), "it was found"
            return None if _unrecorded(group) == _unrecorded(known) else self.state.with_group(group)
        return self.state.with_group(StreamsGroup(group.id, is_delayed=True)) if group.is_delayed else None

    @property
    def _topology(self) -> Topology:
        assert self.topology is not None, "a group has a topology since its first member joined"
        return self.topology

    def _check_tasks(self, configured: Configured) -> None:
        """Raise if the member reports tasks that there are not."""
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
    return [messages.TaskIds(subtopology_id=each, partitions=sorted(tasks[each])) for each in sorted(tasks)]
