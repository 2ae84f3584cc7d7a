"""Python plug-ins as an operator writes them; the tests' nodes import them by name."""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future

from ottla.plugins import (
    Acl,
    AclFilter,
    Action,
    AlteredConfigs,
    AssignmentFailed,
    Group,
    NewTopic,
    Operation,
    PolicyViolation,
    RequestContext,
    ResourceType,
    ServerInfo,
)
from ottla.protocol.errors import InvalidRequest, ThrottlingQuotaExceeded


class TopicRules:
    """Accepts, refuses or fails by the topic's name."""

    def configure(self, settings: Mapping[str, str]) -> None:
        self.greeting = settings["rules.greeting"]

    def validate(self, request: NewTopic) -> None:
        if request.name.startswith("refused"):
            raise PolicyViolation(f"{self.greeting}: {request}")
        if request.name.startswith("broken"):
            raise ValueError("the rules are broken")

    def close(self) -> None:
        print("TopicRules closed", flush=True)


class ConfigRules:
    """Refuses to remove configs."""

    def validate(self, request: AlteredConfigs) -> None:
        if None in request.configs.values():
            raise PolicyViolation(f"{request} takes something away")


class FirstTakesAll:
    """Assigns each topic to its first subscriber by member id."""

    name = "first-takes-all"

    def assign(self, group: Group) -> Mapping[str, Mapping[str, Iterable[int]]]:
        if any(member.instance_id == "objects" for member in group.members.values()):
            raise AssignmentFailed("a member objects")
        if any(member.instance_id == "confuses" for member in group.members.values()):
            return {"m": {"nowhere": [0]}}
        made: dict[str, dict[str, Iterable[int]]] = {}
        for name, topic in group.topics.items():
            first = min(member_id for member_id, member in group.members.items() if name in member.topics)
            made.setdefault(first, {})[name] = range(topic.partitions)
        return made


class Uniform(FirstTakesAll):
    """Has the name of a built-in assignor."""

    name = "uniform"


class Broken:
    """Raises in its constructor."""

    def __init__(self) -> None:
        raise ValueError("not today")

    def validate(self, request: NewTopic) -> None:
        """Never called."""


class Nameless:
    """An assignor without a name."""

    def assign(self, group: Group) -> Mapping[str, Mapping[str, Iterable[int]]]:
        return {}


class Rights:
    """An authorizer that decides by the names of resources and clients, and stores its own ACLs."""

    def configure(self, settings: Mapping[str, str]) -> None:
        self.settings = settings
        self.acls_kept: list[Acl] = []

    def start(self, server: ServerInfo) -> Mapping[str, Future[None]]:
        ports = {endpoint.listener: endpoint.port for endpoint in server.endpoints}
        early = sorted(server.early_start_listeners)
        print(f"Rights started: node {server.node_id}, {sorted(ports)}, early {early}", flush=True)
        ready: Future[None] = Future()
        slow_s = float(self.settings.get("rights.slow.start.s", "0"))
        if "rights.broken.start" in self.settings:
            ready.set_exception(RuntimeError("no rights today"))
        else:
            threading.Timer(slow_s, self._become_ready, [ready]).start()
        return {server.inter_broker_endpoint.listener: ready}

    def _become_ready(self, ready: Future[None]) -> None:
        print("Rights ready", flush=True)
        ready.set_result(None)

    def authorize(self, context: RequestContext, actions: Sequence[Action]) -> list[bool]:
        asked = " ".join(f"{each.operation.name}:{each.kind.name}:{each.name}:{each.references}" for each in actions)
        print(f"asked by {context.principal} {context.client_id} {context.api} v{context.version}: {asked}", flush=True)
        names = [action.name for action in actions]
        if any(name.startswith("broken") for name in names):
            raise ValueError("the rights are broken")
        if any(name.startswith("exits") for name in names):
            raise SystemExit(3)
        if any(name.startswith("stops") for name in names):
            raise StopIteration
        if any(name.startswith("quota") for name in names):
            raise ThrottlingQuotaExceeded("come again")
        if any(name.startswith("slow") for name in names):
            time.sleep(1.5)
        if any(name.startswith("strange") for name in names):
            return [True] * (len(names) + 1)
        return [not name.startswith("closed") for name in names]

    def authorize_by_resource_type(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return context.client_id != "closed"

    def create_acls(self, context: RequestContext, acls: Sequence[Acl]) -> list[Exception | None]:
        outcomes: list[Exception | None] = []
        for acl in acls:
            refused = acl.resource_name.startswith("refused")
            outcomes.append(InvalidRequest(f"no rules for {acl.resource_name}") if refused else None)
            if not refused:
                self.acls_kept.append(acl)
        return outcomes

    def delete_acls(self, context: RequestContext, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        removed = [[acl for acl in self.acls_kept if wanted.matches(acl)] for wanted in filters]
        self.acls_kept = [acl for acl in self.acls_kept if not any(acl in found for found in removed)]
        return removed

    def acls(self, wanted: AclFilter) -> list[Acl]:
        return [acl for acl in self.acls_kept if wanted.matches(acl)]

    def close(self) -> None:
        print("Rights closed", flush=True)
