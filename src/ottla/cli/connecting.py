"""Which cluster a command talks to, and how it says that it could not."""

import argparse
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ottla.cli.command import CommandFailed, NotUnderstood

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.cluster import Cluster
    from ottla.protocol.errors import ApiError
    from ottla.security.settings import Security

T = TypeVar("T")

VARIABLE = "OTTLA_BOOTSTRAP_SERVER"
DEFAULT = "localhost:9092"


def add_connection(parser: argparse.ArgumentParser, *, json: bool = True) -> None:
    """The arguments that every command for a cluster takes."""
    group = parser.add_argument_group("connection and output")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help=f"a broker, or several, of the cluster (default: ${VARIABLE}, or {DEFAULT})",
    )
    group.add_argument(
        "--command-config",
        metavar="FILE",
        help="settings of a client, as Kafka's tools take them: security.protocol, ssl.*, sasl.*",
    )
    group.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=15.0, help="how long to try (default: %(default)s)"
    )
    if json:
        group.add_argument("--json", action="store_true", help="print JSON, for programs")


def ask(arguments: argparse.Namespace, call: "Callable[[Admin], Awaitable[T]]") -> T:
    """What a call of the admin client gives."""
    from ottla.client.admin import Admin

    async def work(cluster: "Cluster") -> T:
        return await call(Admin(cluster))

    return run_with_cluster(arguments, work)


def run_with_cluster(arguments: argparse.Namespace, work: "Callable[[Cluster], Awaitable[T]]") -> T:
    """Do the work with a cluster, and turn what goes wrong into one sentence."""
    import asyncio

    from ottla.client.addresses import InvalidAddress, parse_addresses
    from ottla.client.cluster import Cluster
    from ottla.protocol.errors import ApiError

    text = arguments.bootstrap_server or os.environ.get(VARIABLE) or DEFAULT
    try:
        servers = parse_addresses(text)
    except InvalidAddress as error:
        raise NotUnderstood(str(error)) from None

    security = _security(arguments.command_config)

    async def run() -> T:
        async with Cluster(servers, client_id="ottla-cli", timeout_s=arguments.timeout, security=security) as cluster:
            # A first look with little patience: a server that is not there should be told at once.
            await cluster.retry(cluster.any_connection, timeout_s=min(arguments.timeout, 0.2))
            return await work(cluster)

    try:
        return asyncio.run(run())
    except ApiError as error:
        raise CommandFailed(explain(error, text)) from error


def _security(file: str | None) -> "Security":
    from ottla.config.settings.properties import InvalidProperties, parse_properties
    from ottla.security.errors import InvalidSecurity
    from ottla.security.settings import PLAINTEXT, load_security

    if file is None:
        return PLAINTEXT
    try:
        given = parse_properties(Path(file).read_bytes())
        return load_security({name: each.value for name, each in given.items()})
    except OSError as error:
        raise NotUnderstood(f"--command-config: {file} cannot be read: {error.strerror}") from None
    except (InvalidProperties, InvalidSecurity) as error:
        raise NotUnderstood(f"--command-config: {file}: {error}") from None


def explain(error: "ApiError", servers: str) -> str:
    """The error in one sentence, with what to do where that is clear."""
    from ottla.protocol.errors import (
        AuthenticationError,
        AuthorizationError,
        GroupIdNotFound,
        NetworkFailed,
        NonEmptyGroup,
        RequestTimedOut,
        TopicAlreadyExists,
        UnknownMemberId,
        UnknownTopicOrPartition,
        UnsupportedVersion,
    )

    said = error.message.rstrip(".")
    match error:
        case NetworkFailed() if "cannot be reached" in said:
            return f"{said}; is a broker running there? (-b HOST:PORT says where, now it is {servers})"
        case NetworkFailed() | RequestTimedOut():
            return f"{said}; try again, or with a longer --timeout"
        case TopicAlreadyExists():
            return f"{said}; --if-not-exists makes that no error"
        case UnknownTopicOrPartition() if "no such topic" in said:
            return f"{said}; `ottla topic list` shows those that there are"
        case GroupIdNotFound():
            return f"{said}; `ottla group list` shows those that there are"
        case NonEmptyGroup() | UnknownMemberId():
            return f"{said}; it has members, and they must leave first"
        case UnsupportedVersion():
            return f"{said}; the broker is too old, or too new, for this command"
        case AuthenticationError():
            return f"{said}; --command-config FILE says who you are"
        case AuthorizationError():
            return f"{said}; it takes another user, or more rights for this one"
        case _:
            return f"{said} ({error.name})"
