"""DescribeAcls, CreateAcls and DeleteAcls (keys 29 to 31): the rules that the authorizer goes by.

Rules are kept in the cluster's metadata, so that the controller adds and removes them; they are told from the image. An
authorizer that is a plug-in keeps its rules itself: it is asked for them, and told by the active controller to change
them. A node that has no authorizer has no rules to speak of. A request that names what no rule can have ends the
connection, as a request that cannot be read does.
"""

from collections.abc import Coroutine, Iterable
from typing import Any, Final

from ottla.broker.authorization.access_checks import of_cluster
from ottla.broker.authorization.actions import CLUSTER_NAME, AclStore, Authorizer, Operation, ResourceType
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

_MESSAGE: Final = "No Authorizer is configured."


def create_acls_failed(request: CreateAclsRequest, version: int, error: ApiError) -> CreateAclsResponse:
    """The error for each rule."""
    told = AclCreationResult(error_code=error.code, error_message=error.message)
    return CreateAclsResponse(results=[told] * len(request.creations))


def delete_acls_failed(request: DeleteAclsRequest, version: int, error: ApiError) -> DeleteAclsResponse:
    """The error for each filter."""
    told = DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
    return DeleteAclsResponse(filter_results=[told] * len(request.filters))


@endpoint(ApiKey.DESCRIBE_ACLS, on=BOTH, guard=of_cluster(Operation.DESCRIBE))
def describe_acls(
    call: Call[Any], request: DescribeAclsRequest
) -> DescribeAclsResponse | Coroutine[Any, Any, DescribeAclsResponse]:
    """Tell the rules that a filter means, by resource."""
    _check(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    authorizer: Authorizer | None = call.node.authorizer
    if authorizer is None:
        raise SecurityDisabled("No Authorizer is configured on the broker")
    wanted = DeleteAclsFilter(
        resource_type_filter=request.resource_type_filter,
        resource_name_filter=request.resource_name_filter,
        pattern_type_filter=request.pattern_type_filter,
        principal_filter=request.principal_filter,
        host_filter=request.host_filter,
        operation=request.operation,
        permission_type=request.permission_type,
    )
    if authorizer.keeper is not None:
        return _describe_kept(authorizer.keeper, wanted)
    return _described(acl for acl in sorted(call.node.image.acls.values()) if matches(wanted, acl))


async def _describe_kept(keeper: AclStore, wanted: DeleteAclsFilter) -> DescribeAclsResponse:
    return _described(await keeper.acls(wanted))


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
    found = resources.get(key)
    if found is None:
        found = resources[key] = DescribeAclsResource(
            resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
        )
    return found


@endpoint(ApiKey.CREATE_ACLS, on=BOTH, failed=create_acls_failed, guard=of_cluster(Operation.ALTER))
async def create_acls(call: Call[Any], request: CreateAclsRequest) -> CreateAclsResponse:
    """Have the controller add rules; one that cannot be spoils only its own answer."""
    for each in request.creations:
        _check(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
    if call.node.authorizer is None:
        raise SecurityDisabled(_MESSAGE)
    wrong = [_what_is_wrong(each) for each in request.creations]
    good = [each for each, why in zip(request.creations, wrong, strict=True) if why is None]
    decided: Any = await call.node.decide(call, CreateAclsRequest(creations=good)) if good else CreateAclsResponse()
    results = iter(decided.results)
    return CreateAclsResponse(
        results=[
            next(results) if why is None else AclCreationResult(error_code=InvalidRequest.code, error_message=why)
            for why in wrong
        ]
    )


@endpoint(ApiKey.DELETE_ACLS, on=BOTH, failed=delete_acls_failed, guard=of_cluster(Operation.ALTER))
async def delete_acls(call: Call[Any], request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Have the controller remove rules."""
    for each in request.filters:
        _check(each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
    if call.node.authorizer is None:
        raise SecurityDisabled(_MESSAGE)
    decided: DeleteAclsResponse = await call.node.decide(call, request)
    return decided


def _what_is_wrong(creation: AclCreation) -> str | None:
    if creation.resource_type == ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    return "Invalid empty resource name" if not creation.resource_name else None


def _check(*codes: int) -> None:
    if UNKNOWN in codes:
        raise CloseConnection("it asked for rules of an unknown kind")
