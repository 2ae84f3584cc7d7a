"""DescribeAcls, CreateAcls and DeleteAcls (keys 29 to 31) on a node that has no authorizer: there are no rules to speak
of. A request that names what no rule can have ends the connection, as a request that cannot be read does.
"""

from typing import Any, Final

from ottla.api.call import Call, CloseConnection
from ottla.api.endpoint import endpoint
from ottla.controller.acls import UNKNOWN
from ottla.errors import ApiError, SecurityDisabled
from ottla.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from ottla.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_MESSAGE: Final = "No Authorizer is configured."


def create_acls_failed(request: CreateAclsRequest, version: int, error: ApiError) -> CreateAclsResponse:
    """The error for each rule."""
    told = AclCreationResult(error_code=error.code, error_message=error.message)
    return CreateAclsResponse(results=[told] * len(request.creations))


def delete_acls_failed(request: DeleteAclsRequest, version: int, error: ApiError) -> DeleteAclsResponse:
    """The error for each filter."""
    told = DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
    return DeleteAclsResponse(filter_results=[told] * len(request.filters))


@endpoint(29)
def describe_acls(call: Call[Any], request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Say that there are none."""
    _check(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    raise SecurityDisabled("No Authorizer is configured on the broker")


@endpoint(30, failed=create_acls_failed)
def create_acls(call: Call[Any], request: CreateAclsRequest) -> CreateAclsResponse:
    """Say that none can be made."""
    for each in request.creations:
        _check(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
    raise SecurityDisabled(_MESSAGE)


@endpoint(31, failed=delete_acls_failed)
def delete_acls(call: Call[Any], request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Say that none can be removed."""
    for each in request.filters:
        _check(each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
    raise SecurityDisabled(_MESSAGE)


def _check(*codes: int) -> None:
    if UNKNOWN in codes:
        raise CloseConnection("it asked for rules of an unknown kind")
