"""Authorizers that are plug-ins, in Python or in Java.

They run in a thread or in the JVM, and only the request in question waits. If an authorizer raises, times out or is
gone, the request fails. Of consecutive failures, only the first is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from ottla.broker.authorization.actions import Action, Answers, Operation, ResourceType, Unanswered
from ottla.metadata.image.values import Acl
from ottla.plugins import AclFilter, RequestContext, ServerInfo
from ottla.plugins.jvm import Failed, Jvm, NoAnswer, Refused
from ottla.plugins.policies import PluginThread
from ottla.protocol.errors import ApiError, SecurityDisabled, UnknownServerError, by_code
from ottla.protocol.messages.rpc.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.rpc.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.replication.runtime import Spawn

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 10.0
"""The timeout for one question; clients wait for 30 s."""
CHANGE_TIMEOUT_S: Final = 25.0
"""The timeout for changes of ACLs, which the authorizer may store remotely."""
_ANY_CODE: Final = 1
_NO_ANSWERS: Final[Answers] = {}
Outcome = ApiError | None
Removal = tuple[Outcome, Sequence[tuple[Acl, Outcome]]]
"""The result of one filter: an error, or each matching ACL with None or the error of its removal."""
T = TypeVar("T")


class Plugin(Protocol):
    """An authorizer in Python or Java."""

    def start(self, server: ServerInfo) -> Awaitable[Mapping[str, Callable[[], Awaitable[object]]]]: ...

    def authorize(self, context: RequestContext, actions: Sequence[Action]) -> Awaitable[Sequence[bool]]: ...

    def authorize_any(self, context: RequestContext, operation: Operation, kind: ResourceType) -> Awaitable[bool]: ...

    def acls(self, wanted: DeleteAclsFilter) -> Awaitable[Iterable[Acl]]: ...

    def create_acls(self, context: RequestContext, acls: Sequence[Acl]) -> Awaitable[Sequence[Outcome]]: ...

    def delete_acls(
        self, context: RequestContext, filters: Sequence[DeleteAclsFilter]
    ) -> Awaitable[Sequence[Removal]]: ...

    def give_up(self) -> None: ...


class PluginAuthorizer:
    """The authorizer of a node. Each kind of question of a request is one call."""

    must_recheck_sessions = True
    """Its decisions may change at any time, so they are not cached."""

    def __init__(self, name: str, plugin: Plugin) -> None:
        self.name = name
        self._plugin = plugin
        self._protocols: Mapping[str, str] = {}
        self._spawn: Spawn | None = None
        self._is_failing = False

    @property
    def acl_store(self) -> PluginAuthorizer:
        return self

    async def start(self, server: ServerInfo, spawn: Spawn) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Start the plug-in. Return, by listener, functions that wait until it can decide on requests there."""
        self._spawn = spawn
        self._protocols = {endpoint.listener: endpoint.security_protocol for endpoint in server.endpoints}
        return await self._plugin.start(server)

    def authorize(self, call: Any, actions: Sequence[Action]) -> list[bool]:
        """Return whether each action is allowed. Raise Unanswered until the plug-in has decided."""
        answered: Answers = getattr(call, "answers", _NO_ANSWERS)
        try:
            return [answered[action] for action in actions]
        except KeyError:
            raise _Question(self, actions, partial(self._authorized, self._context(call), actions)) from None

    def authorize_any(self, call: Any, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the operation is allowed on any resource of a kind. Raise Unanswered as well."""
        question = ("any", operation, kind)
        answered: Answers = getattr(call, "answers", _NO_ANSWERS)
        if question not in answered:
            raise _Question(self, [question], partial(self._any_authorized, self._context(call), operation, kind))
        return answered[question]

    async def acls(self, wanted: DeleteAclsFilter) -> Iterable[Acl]:
        """Return the ACLs that match a filter."""
        return sorted(await self._answer_of(self._plugin.acls(wanted), TIMEOUT_S))

    async def create_acls(self, call: Any, request: CreateAclsRequest) -> CreateAclsResponse:
        """Add ACLs. An error concerns only its own ACL."""
        acls = [
            Acl(
                creation.resource_type,
                creation.resource_name,
                creation.resource_pattern_type,
                creation.principal,
                creation.host,
                creation.operation,
                creation.permission_type,
            )
            for creation in request.creations
        ]
        outcomes = await self._answer_of(self._plugin.create_acls(self._context(call), acls), CHANGE_TIMEOUT_S)
        results = [
            AclCreationResult()
            if error is None
            else AclCreationResult(error_code=error.code, error_message=error.message)
            for _, error in zip(acls, outcomes, strict=True)
        ]
        return CreateAclsResponse(results=results)

    async def delete_acls(self, call: Any, request: DeleteAclsRequest) -> DeleteAclsResponse:
        """Remove ACLs."""
        asked = self._plugin.delete_acls(self._context(call), request.filters)
        removals = await self._answer_of(asked, CHANGE_TIMEOUT_S)
        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(
                    **_error_fields(error),
                    matching_acls=[
                        DeleteAclsMatchingAcl(**_error_fields(why), **acl._asdict()) for acl, why in removed
                    ],
                )
                for _, (error, removed) in zip(request.filters, removals, strict=True)
            ]
        )

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._spawn is not None, "it is started before listeners take requests"
        self._spawn(work)

    def _context(self, call: Any) -> RequestContext:
        client = call.client
        return RequestContext(
            principal=client.principal,
            has_token=client.has_token,
            address=client.address,
            listener=client.listener,
            security_protocol=self._protocols.get(client.listener, "PLAINTEXT"),
            api=call.api_name,
            api_key=call.api_key,
            version=call.version,
            client_id=call.client_id or "",
            correlation_id=call.correlation_id,
        )

    async def _authorized(self, context: RequestContext, actions: Sequence[Action]) -> list[bool]:
        return await self._answer_of(_booleans(self._plugin.authorize(context, actions), len(actions)), TIMEOUT_S)

    async def _any_authorized(self, context: RequestContext, operation: Operation, kind: ResourceType) -> list[bool]:
        return [await self._answer_of(self._plugin.authorize_any(context, operation, kind), TIMEOUT_S) is True]

    async def _answer_of(self, answer: Awaitable[T], timeout_s: float) -> T:
        """Return the plug-in's answer. Raise an ApiError for the client if it fails or times out."""
        cause: BaseException | None = None
        try:
            result = await asyncio.wait_for(answer, timeout_s)
        except ApiError:
            self._log_recovery()
            raise
        except Refused as refused:
            self._log_recovery()
            code, message = refused.args[0]
            raise by_code(code)(message) from None
        except TimeoutError:
            reason = f"it did not answer within {timeout_s:.0f} s"
            self._plugin.give_up()
        except (NoAnswer, Failed) as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 (any failure denies the request)
            reason, cause = repr(error), error
        else:
            self._log_recovery()
            return result
        if not self._is_failing:
            self._is_failing = True
            logger.error(
                "the authorizer %s failed: %s; requests that it must decide on fail until it answers again",
                self.name,
                reason,
                exc_info=cause,
            )
        raise UnknownServerError("The authorizer could not decide.")

    def _log_recovery(self) -> None:
        if self._is_failing:
            self._is_failing = False
            logger.warning("the authorizer %s answers again", self.name)


class _Question(Unanswered):
    """A question that is sent to the plug-in when its answer is awaited."""

    def __init__(
        self, authorizer: PluginAuthorizer, questions: Sequence[Hashable], ask: Callable[[], Awaitable[list[bool]]]
    ) -> None:
        super().__init__(questions)
        self._authorizer = authorizer
        self._ask = ask

    async def answers(self) -> Answers:
        return dict(zip(self.questions, await self._ask(), strict=True))

    def then(self, call: Any, go_on: Callable[[], object], *, refuse: bool = True) -> None:
        self._authorizer.begin(self._then(call, go_on, refuse))

    async def _then(self, call: Any, go_on: Callable[[], object], refuse: bool) -> None:
        try:
            call.learn(await self.answers())
        except ApiError:
            if refuse:
                call.learn(dict.fromkeys(self.questions, False))
        try:
            go_on()
        except Exception as error:
            logger.error("%s v%d failed after its authorization", call.api_name, call.version, exc_info=error)
            if not getattr(call.exchange, "is_answered", False):
                call.exchange.refuse(f"{call.api_name} failed after its authorization")


class PythonAuthorizer:
    """An authorizer that is a Python class, called in a thread."""

    def __init__(self, plugin: Any, thread: PluginThread) -> None:
        self._plugin = plugin
        self._thread = thread

    async def start(self, server: ServerInfo) -> Mapping[str, Callable[[], Awaitable[object]]]:
        start = getattr(self._plugin, "start", None)
        futures: Mapping[str, Future[object]] = (await self._in_thread(start, server) or {}) if start else {}
        return {listener: partial(asyncio.wrap_future, future) for listener, future in futures.items()}

    def authorize(self, context: RequestContext, actions: Sequence[Action]) -> Awaitable[Sequence[bool]]:
        return self._in_thread(self._plugin.authorize, context, actions)

    async def authorize_any(self, context: RequestContext, operation: Operation, kind: ResourceType) -> bool:
        ask = getattr(self._plugin, "authorize_by_resource_type", None)
        return False if ask is None else await self._in_thread(ask, context, operation, kind) is True

    async def acls(self, wanted: DeleteAclsFilter) -> Iterable[Acl]:
        ask = getattr(self._plugin, "acls", None)
        if ask is None:
            return ()
        acls: Iterable[Acl] = await self._in_thread(lambda: list(ask(_filter(wanted))))
        return acls

    async def create_acls(self, context: RequestContext, acls: Sequence[Acl]) -> Sequence[Outcome]:
        create = self._method("create_acls")
        return [_python_outcome(outcome) for outcome in await self._in_thread(create, context, acls)]

    async def delete_acls(self, context: RequestContext, filters: Sequence[DeleteAclsFilter]) -> Sequence[Removal]:
        delete = self._method("delete_acls")
        outcomes = await self._in_thread(delete, context, [_filter(wanted) for wanted in filters])
        return [
            (_python_outcome(outcome), ())
            if isinstance(outcome, Exception)
            else (None, [(acl, None) for acl in outcome])
            for outcome in outcomes
        ]

    def give_up(self) -> None:
        """Do nothing: a thread cannot be killed. The questions that wait behind time out too."""

    def _method(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] | None = getattr(self._plugin, name, None)
        if method is None:
            raise SecurityDisabled("The authorizer does not let its ACLs be changed.")
        return method

    async def _in_thread(self, function: Callable[..., Any], *arguments: object) -> Any:
        return await asyncio.wrap_future(self._thread.submit(partial(function, *arguments)))


_AUTHORIZE, _AUTHORIZE_ANY, _CREATE, _DELETE, _SHOW, _START, _WAIT = range(7)


class JavaAuthorizer:
    """An authorizer that is a Java class, called in the JVM."""

    def __init__(self, jvm: Jvm, index: int) -> None:
        self._jvm = jvm
        self._index = index

    async def start(self, server: ServerInfo) -> Mapping[str, Callable[[], Awaitable[object]]]:
        endpoints = [
            [endpoint.listener, endpoint.security_protocol, endpoint.host, endpoint.port]
            for endpoint in server.endpoints
        ]
        listener = server.inter_broker_endpoint.listener
        early = sorted(server.early_start_listeners)
        question = [_START, [server.cluster_id, server.node_id, endpoints, listener, early]]
        self._jvm.first_questions[self._index] = question
        listeners = await self._ask(*question)
        return {listener: partial(self._ask, _WAIT, listener) for listener in listeners}

    async def authorize(self, context: RequestContext, actions: Sequence[Action]) -> Sequence[bool]:
        results = await self._ask(_AUTHORIZE, _encode_context(context), actions)
        return [result == 1 for result in results]

    async def authorize_any(self, context: RequestContext, operation: Operation, kind: ResourceType) -> bool:
        return bool(await self._ask(_AUTHORIZE_ANY, _encode_context(context), operation, kind) == 1)

    async def acls(self, wanted: DeleteAclsFilter) -> Iterable[Acl]:
        return [Acl(*fields) for fields in await self._ask(_SHOW, _encode_filter(wanted))]

    async def create_acls(self, context: RequestContext, acls: Sequence[Acl]) -> Sequence[Outcome]:
        return [_java_outcome(outcome) for outcome in await self._ask(_CREATE, _encode_context(context), acls)]

    async def delete_acls(self, context: RequestContext, filters: Sequence[DeleteAclsFilter]) -> Sequence[Removal]:
        outcomes = await self._ask(_DELETE, _encode_context(context), [_encode_filter(wanted) for wanted in filters])
        return [
            (_java_outcome(error), [(Acl(*acl), _java_outcome(why)) for acl, why in removed])
            for error, removed in outcomes
        ]

    def give_up(self) -> None:
        self._jvm.give_up()

    async def _ask(self, *question: object) -> Any:
        return await asyncio.wrap_future(self._jvm.ask(self._index, question))


async def _booleans(answer: Awaitable[Sequence[bool]], count: int) -> list[bool]:
    """Return the answer. Raise ValueError unless it is one boolean for each action."""
    results = list(await answer)
    if len(results) != count or not all(isinstance(result, bool) for result in results):
        raise ValueError(f"its answer must be a list of {count} booleans, not {results!r}")
    return results


def _python_outcome(outcome: object) -> Outcome:
    """Return the outcome of one change in a Python plug-in."""
    if outcome is None or isinstance(outcome, ApiError):
        return outcome
    raise ValueError(f"its outcome must be None or an ApiError, not {outcome!r}")


def _java_outcome(outcome: Any) -> Outcome:
    """Return the outcome of one change in a Java plug-in."""
    return None if outcome is None else by_code(outcome[0])(outcome[1])


def _error_fields(error: Outcome) -> dict[str, Any]:
    return {"error_code": 0 if error is None else error.code, "error_message": None if error is None else error.message}


def _filter(wanted: DeleteAclsFilter) -> AclFilter:
    def code(value: int) -> int | None:
        return None if value == _ANY_CODE else value

    return AclFilter(
        resource_type=code(wanted.resource_type_filter),
        resource_name=wanted.resource_name_filter,
        pattern_type=code(wanted.pattern_type_filter),
        principal=wanted.principal_filter,
        host=wanted.host_filter,
        operation=code(wanted.operation),
        permission_type=code(wanted.permission_type),
    )


def _encode_filter(wanted: DeleteAclsFilter) -> list[object]:
    return [
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    ]


def _encode_context(context: RequestContext) -> list[object]:
    kind, _, name = context.principal.partition(":")
    return [
        kind,
        name,
        context.has_token,
        context.address,
        context.listener,
        context.security_protocol,
        context.api_key,
        context.version,
        context.client_id,
        context.correlation_id,
    ]
