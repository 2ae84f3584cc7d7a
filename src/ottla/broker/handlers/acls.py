"""DescribeAcls, CreateAcls and DeleteAcls (keys 29 to 31): the rules of the authorizer.

ACLs are in the cluster's metadata: the controller adds and removes them, and every node describes them from its image.
An authorizer plug-in may keep its ACLs itself; the active controller passes changes on to it. A node without an
authorizer has no ACLs. A filter or ACL with an unknown kind closes the connection, as a malformed request does.
"""

from collections.abc import Coroutine, Iterable
from typing import Any, Final

from ottla.broker.authorization.actions import CLUSTER_NAME, AclStore, Authorizer, Operation, ResourceType
from ottla.broker.authorization.guards import of_cluster
from ottla.broker.requests.call import Call, CloseConnection
from ottla.broker.requests.endpoint import endpoint
from ottla.metadata.controller.acls import UNKNOWN, matches
from ottla.metadata.image.values import Acl
from ottla.protocol.errors import ApiError, InvalidRequest, SecurityDisabled
from ottla.protocol.messages.apis import BOTH, ApiKey
from ottla.protocol.messages.rpc.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.protocol.messages.rpc.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.messages.rpc.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

_NO_AUTHORIZER: Final = "No Authorizer is configured."


def create_acls_failed(request: CreateAclsRequest, version: int, error: ApiError) -> CreateAclsResponse:
    """Return the error for each ACL."""
    result = AclCreationResult(error_code=error.code, error_message=error.message)
    return CreateAclsResponse(results=[result] * len(request.creations))


def delete_acls_failed(request: DeleteAclsRequest, version: int, error: ApiError) -> DeleteAclsResponse:
    """Return the error for each filter."""
    result = DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))


@endpoint(ApiKey.DESCRIBE_ACLS, on=BOTH, guard=of_cluster(Operation.DESCRIBE))
def describe_acls(
    call: Call[Any], request: DescribeAclsRequest
) -> DescribeAclsResponse | Coroutine[Any, Any, DescribeAclsResponse]:
    """Return the ACLs that match a filter, by resource."""
    _check_kinds(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    authorizer: Authorizer | None = call.node.authorizer
    if authorizer is None:
        raise SecurityDisabled("No Authorizer is configured on the broker")
    acl_filter = DeleteAclsFilter(
        resource_type_filter=request.resource_type_filter,
        resource_name_filter=request.resource_name_filter,
        pattern_type_filter=request.pattern_type_filter,
        principal_filter=request.principal_filter,
        host_filter=request.host_filter,
        operation=request.operation,
        permission_type=request.permission_type,
    )
    if authorizer.acl_store is not None:
        return _describe_from_store(authorizer.acl_store, acl_filter)
    return _described(acl for acl in sorted(call.node.image.acls.values()) if matches(acl_filter, acl))


async def _describe_from_store(acl_store: AclStore, acl_filter: DeleteAclsFilter) -> DescribeAclsResponse:
    return _described(await acl_store.acls(acl_filter))


def _described(acls: Iterable[Acl]) -> DescribeAclsResponse:
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in acls:
        _resource_of(resources, acl).acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
        )
    return DescribeAclsResponse(resources=[*resources.values()])


def _resource_of(resources: dict[tuple[int, str, int], DescribeAclsResource], acl: Acl) -> DescribeAclsResource:
    key = (acl.resource_type, acl.resource_name, acl.pattern_type)
    resource = resources.get(key)
    if resource is None:
        resource = resources[key] = DescribeAclsResource(
            resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
        )
    return resource


@endpoint(ApiKey.CREATE_ACLS, on=BOTH, failed=create_acls_failed, guard=of_cluster(Operation.ALTER))
async def create_acls(call: Call[Any], request: CreateAclsRequest) -> CreateAclsResponse:
    """Let the controller add ACLs. An invalid ACL fails alone."""
    for creation in request.creations:
        _check_kinds(
            creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type
        )
    if call.node.authorizer is None:
        raise SecurityDisabled(_NO_AUTHORIZER)
    problems = [_problem_of(creation) for creation in request.creations]
    valid = [creation for creation, problem in zip(request.creations, problems, strict=True) if problem is None]
    decided: Any = await call.node.decide(call, CreateAclsRequest(creations=valid)) if valid else CreateAclsResponse()
    results = iter(decided.results)
    return CreateAclsResponse(
        results=[
            next(results)
            if problem is None
            else AclCreationResult(error_code=InvalidRequest.code, error_message=problem)
            for problem in problems
        ]
    )


@endpoint(ApiKey.DELETE_ACLS, on=BOTH, failed=delete_acls_failed, guard=of_cluster(Operation.ALTER))
async def delete_acls(call: Call[Any], request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Let the controller remove ACLs."""
    for acl_filter in request.filters:
        _check_kinds(
            acl_filter.resource_type_filter,
            acl_filter.pattern_type_filter,
            acl_filter.operation,
            acl_filter.permission_type,
        )
    if call.node.authorizer is None:
        raise SecurityDisabled(_NO_AUTHORIZER)
    decided: DeleteAclsResponse = await call.node.decide(call, request)
    return decided


def _problem_of(creation: AclCreation) -> str | None:
    if creation.resource_type == ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    return "Invalid empty resource name" if not creation.resource_name else None


def _check_kinds(*codes: int) -> None:
    if UNKNOWN in codes:
        raise CloseConnection("it sent an ACL or a filter of ACLs with an unknown kind")
