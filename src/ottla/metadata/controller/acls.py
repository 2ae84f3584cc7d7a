"""CreateAcls and DeleteAcls. Authorization runs before."""

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
    """The pattern type of a resource name. UNKNOWN, ANY and MATCH occur only in filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


def create_acls(
    view: ControllerView, request: CreateAclsRequest, *, new_id: Callable[[], bytes]
) -> Decision[CreateAclsResponse]:
    """Add ACLs that do not exist yet."""
    existing = {*view.image.acls.values()} if request.creations else set()
    records: list[object] = []
    results = []
    for creation in request.creations:
        result = AclCreationResult(error_message=None)
        try:
            acl = _new_acl(creation)
        except ApiError as error:  # an invalid ACL fails alone
            result.error_code, result.error_message = error.code, error.message
        else:
            if acl not in existing:
                existing.add(acl)
                records.append(_record(acl, new_id()))
        results.append(result)
    return decide_atomically(records, CreateAclsResponse(results=results))


def delete_acls(view: ControllerView, request: DeleteAclsRequest) -> Decision[DeleteAclsResponse]:
    """Remove all ACLs that match any of the filters."""
    removed: dict[bytes, RemoveAccessControlEntryRecord] = {}
    results = []
    for acl_filter in request.filters:
        result = DeleteAclsFilterResult(error_message=None)
        try:
            _check_filter(acl_filter)
        except ApiError as error:  # an invalid filter fails alone
            result.error_code, result.error_message = error.code, error.message
        else:
            for acl_id, acl in sorted(view.image.acls.items()):
                if matches(acl_filter, acl):
                    removed[acl_id] = RemoveAccessControlEntryRecord(id=acl_id)
                    result.matching_acls.append(_describe_acl(acl))
        if len(removed) > MAX_RECORDS:
            raise InvalidRequest(f"Cannot remove more than {MAX_RECORDS} acls in a single delete operation.")
        results.append(result)
    return decide_atomically([*removed.values()], DeleteAclsResponse(filter_results=results))


def matches(acl_filter: DeleteAclsFilter, acl: Acl) -> bool:
    """Whether an ACL matches a filter."""
    return (
        acl_filter.resource_type_filter in (ANY, acl.resource_type)
        and _name_matches(acl_filter.pattern_type_filter, acl_filter.resource_name_filter, acl)
        and acl_filter.principal_filter in (None, acl.principal)
        and acl_filter.host_filter in (None, acl.host)
        and acl_filter.operation in (ANY, acl.operation)
        and acl_filter.permission_type in (ANY, acl.permission_type)
    )


def _name_matches(pattern: int, name: str | None, acl: Acl) -> bool:
    if pattern not in (Pattern.ANY, Pattern.MATCH, acl.pattern_type):
        return False
    if name is None:
        return True
    if pattern != Pattern.MATCH:
        return name == acl.resource_name
    # MATCH finds all ACLs that apply to a resource of this name.
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


def _check_filter(acl_filter: DeleteAclsFilter) -> None:
    if (
        acl_filter.resource_type_filter not in (ANY, *_RESOURCE_TYPES)
        or acl_filter.pattern_type_filter == Pattern.UNKNOWN
        or acl_filter.pattern_type_filter > Pattern.PREFIXED
    ):
        raise InvalidRequest("Unknown patternFilter.")
    if acl_filter.operation not in (ANY, *_OPERATIONS) or acl_filter.permission_type not in (ANY, *_PERMISSIONS):
        raise InvalidRequest("Unknown entryFilter.")


def _record(acl: Acl, acl_id: bytes) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(id=acl_id, **acl._asdict())


def _describe_acl(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(error_message=None, **acl._asdict())
