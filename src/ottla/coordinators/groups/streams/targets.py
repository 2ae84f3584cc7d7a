"""Computation of a streams group's target assignment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.coordinators.groups.streams.configuring import ConfiguredTopology
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import StreamsGroupMember
from ottla.coordinators.groups.streams.records import target_assignment_epoch_record, target_assignment_record
from ottla.coordinators.groups.streams.settings import STANDBYS
from ottla.coordinators.groups.streams.sticky_assignor import AssignorMember, AssignorSubtopology, assign_tasks
from ottla.coordinators.groups.streams.tasks import NO_TASKS, Tasks
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash, versioned_order
from ottla.storage.state_machine.entries import Stored

_NO_STANDBYS: Final = "0"


def compute_targets(
    group: StreamsGroup,
    configured: ConfiguredTopology,
    settings: Mapping[str, str],
    updated_member: StreamsGroupMember | None,
) -> dict[str, Tasks]:
    """Return the new target of each member: no tasks while the topology is not ready. `updated_member` may be new."""
    ids = versioned_order(group.members)
    if updated_member is not None and updated_member.id not in group.members:
        ids.append(updated_member.id)
    ids = hash_order(ids, string_hash, grown_table_size(len(ids)))
    if not configured.is_ready:
        return dict.fromkeys(ids, NO_TASKS)
    assert configured.subtopologies is not None, "a topology that is ready has subtopologies"
    members = group.members if updated_member is None else group.members.set(updated_member.id, updated_member)
    assignor_members = {
        member_id: AssignorMember(members[member_id].process_id, group.target_of(member_id)) for member_id in ids
    }
    subtopologies = {
        subtopology_id: AssignorSubtopology(subtopology.tasks, subtopology.is_stateful)
        for subtopology_id, subtopology in configured.subtopologies.items()
    }
    return assign_tasks(assignor_members, subtopologies, int(settings.get(STANDBYS, _NO_STANDBYS)))


def target_records(group: StreamsGroup, targets: Mapping[str, Tasks], epoch: int, now_ms: int) -> Iterable[Stored]:
    """Yield the records of the changed targets and of the target's epoch."""
    for member_id, target in targets.items():
        if group.targets.get(member_id) != target:
            yield target_assignment_record(group.id, member_id, target)
    yield target_assignment_epoch_record(group.id, epoch, now_ms)
