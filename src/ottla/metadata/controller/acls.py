"""Access rules are added and removed. Who may ask for that is checked before."""

from collections.abc import Callable
from enum import IntEnum

from ottla.metadata.controller.decision import MAX_RECORDS, Decision, decide_atomically
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.values import Acl
from ottla.protocol.errors import ApiError, InvalidRequest
from ottla.protocol.messages.records.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ottla.protocol.messages.rpc.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.protocol.messages.rpc.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

UNKNOWN, ANY = 0, 1
_RESOURCE_TYPES = range(2, 8)
_OPERATIONS = range(2, 16)
_PERMISSIONS = range(2, 4)
_WILDCARD = "*"


class Pattern(IntEnum):
    """How a resource is named. The first four serve only to find rules."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


def create_acls(
    view: ControllerView, request: CreateAclsRequest, *, new_id: Callable[[], bytes]
) -> Decision[CreateAclsResponse]:
    """Add rules; one that is there already is not added again."""
    known = {*view.image.acls.values()} if request.creations else set()
    records: list[object] = []
    results = []
    for creation in request.creations:
        result = AclCreationResult(error_message=None)
        try:
            acl = _new_acl(creation)
        except ApiError as error:  # one bad rule spoils only its own answer
            result.error_code, result.error_message = error.code, error.message
        else:
            if acl not in known:
                known.add(acl)
                records.append(_record(acl, new_id()))
        results.append(result)
    return decide_atomically(records, CreateAclsResponse(results=results))


def delete_acls(view: ControllerView, request: DeleteAclsRequest) -> Decision[DeleteAclsResponse]:
    """Remove the rules that match any of some filters."""
    removed: dict[bytes, RemoveAccessControlEntryRecord] = {}
    results = []
    for wanted in request.filters:
        result = DeleteAclsFilterResult(error_message=None)
        try:
            _check_filter(wanted)
        except ApiError as error:  # one bad filter spoils only its own answer
            result.error_code, result.error_message = error.code, error.message
        else:
            for acl_id, acl in sorted(view.image.acls.items()):
                if matches(wanted, acl):
                    removed[acl_id] = RemoveAccessControlEntryRecord(id=acl_id)
                    result.matching_acls.append(_shown(acl))
        if len(removed) > MAX_RECORDS:
            raise InvalidRequest(f"Cannot remove more than {MAX_RECORDS} acls in a single delete operation.")
        results.append(result)
    return decide_atomically([*removed.values()], DeleteAclsResponse(filter_results=results))


def matches(wanted: DeleteAclsFilter, acl: Acl) -> bool:
    """Whether a rule is one of those that a filter means."""
    return (
        wanted.resource_type_filter in (ANY, acl.resource_type)
        and _name_matches(wanted.pattern_type_filter, wanted.resource_name_filter, acl)
        and wanted.principal_filter in (None, acl.principal)
        and wanted.host_filter in (None, acl.host)
        and wanted.operation in (ANY, acl.operation)
        and wanted.permission_type in (ANY, acl.permission_type)
    )


def _name_matches(pattern: int, name: str | None, acl: Acl) -> bool:
    if pattern not in (Pattern.ANY, Pattern.MATCH, acl.pattern_type):
        return False
    if name is None:
        return True
    if pattern != Pattern.MATCH:
        return name == acl.resource_name
    # All rules that concern a resource of this name.
    if acl.pattern_type == Pattern.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, _WILDCARD)


def _new_acl(creation: AclCreation) -> Acl:
    if creation.resource_type not in _RESOURCE_TYPES:
        raise InvalidRequest(f"Invalid resourceType {creation.resource_type}")
    if creation.resource_pattern_type not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise InvalidRequest(f"Invalid patternType {creation.resource_pattern_type}")
    if creation.operation not in _OPERATIONS:
        raise InvalidRequest(f"Invalid operation {creation.operation}")
    if creation.permission_type not in _PERMISSIONS:
        raise InvalidRequest(f"Invalid permissionType {creation.permission_type}")
    if not creation.resource_name:
        raise InvalidRequest("Resource name should not be empty")
    if ":" not in creation.principal:
        raise InvalidRequest(
            f"Could not parse principal from `{creation.principal}` (no colon is present separating"
            " the principal type from the principal name)"
        )
    return Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _check_filter(wanted: DeleteAclsFilter) -> None:
    if (
        wanted.resource_type_filter not in (ANY, *_RESOURCE_TYPES)
        or wanted.pattern_type_filter == Pattern.UNKNOWN
        or wanted.pattern_type_filter > Pattern.PREFIXED
    ):
        raise InvalidRequest("Unknown patternFilter.")
    if wanted.operation not in (ANY, *_OPERATIONS) or wanted.permission_type not in (ANY, *_PERMISSIONS):
        raise InvalidRequest("Unknown entryFilter.")


def _record(acl: Acl, acl_id: bytes) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(id=acl_id, **acl._asdict())


def _shown(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(error_message=None, **acl._asdict())
