"""Connects commands to a cluster, and turns its errors into one sentence each."""

import argparse
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ottla.cli.command import CommandFailed, InvalidUsage

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.cluster import Cluster
    from ottla.protocol.errors import ApiError
    from ottla.security.settings import Security

T = TypeVar("T")

VARIABLE = "OTTLA_BOOTSTRAP_SERVER"
DEFAULT = "localhost:9092"


def add_connection(parser: argparse.ArgumentParser, *, json: bool = True) -> None:
    """Add the arguments that every command for a cluster accepts."""
    group = parser.add_argument_group("connection and output")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help=f"one or more brokers of the cluster (default: ${VARIABLE}, or {DEFAULT})",
    )
    group.add_argument(
        "--command-config",
        metavar="FILE",
        help="a properties file with client settings, as for Kafka's tools: security.protocol, ssl.*, sasl.*",
    )
    group.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=15.0, help="how long to keep trying (default: %(default)s)"
    )
    if json:
        group.add_argument("--json", action="store_true", help="print JSON, for programs")


def ask(arguments: argparse.Namespace, call: "Callable[[Admin], Awaitable[T]]") -> T:
    """Return the result of a call of the admin client."""
    from ottla.client.admin import Admin

    async def work(cluster: "Cluster") -> T:
        return await call(Admin(cluster))

    return run_with_cluster(arguments, work)


def run_with_cluster(arguments: argparse.Namespace, work: "Callable[[Cluster], Awaitable[T]]") -> T:
    """Run the work with a connected cluster; an error becomes one sentence."""
    import asyncio

    from ottla.client.addresses import InvalidAddress, parse_addresses
    from ottla.client.cluster import Cluster
    from ottla.protocol.errors import ApiError

    text = arguments.bootstrap_server or os.environ.get(VARIABLE) or DEFAULT
    try:
        servers = parse_addresses(text)
    except InvalidAddress as error:
        raise InvalidUsage(str(error)) from None

    security = _security(arguments.command_config)

    async def run() -> T:
        async with Cluster(servers, client_id="ottla-cli", timeout_s=arguments.timeout, security=security) as cluster:
            # The first attempt is short, so that a server that is not running is reported at once.
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
        properties = parse_properties(Path(file).read_bytes())
        return load_security({name: entry.value for name, entry in properties.items()})
    except OSError as error:
        raise InvalidUsage(f"--command-config: {file} cannot be read: {error.strerror}") from None
    except (InvalidProperties, InvalidSecurity) as error:
        raise InvalidUsage(f"--command-config: {file}: {error}") from None


def explain(error: "ApiError", servers: str) -> str:
    """Return the error in one sentence, with advice where there is some."""
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

    message = error.message.rstrip(".")
    match error:
        case NetworkFailed() if "cannot be reached" in message:
            return f"{message}; is a broker running there? (use -b HOST:PORT; the current value is {servers})"
        case NetworkFailed() | RequestTimedOut():
            return f"{message}; try again, or use a longer --timeout"
        case TopicAlreadyExists():
            return f"{message}; use --if-not-exists to ignore this"
        case UnknownTopicOrPartition() if "no such topic" in message:
            return f"{message}; `ottla topic list` lists the topics"
        case GroupIdNotFound():
            return f"{message}; `ottla group list` lists the groups"
        case NonEmptyGroup() | UnknownMemberId():
            return f"{message}; stop its members first"
        case UnsupportedVersion():
            return f"{message}; the broker does not support this command"
        case AuthenticationError():
            return f"{message}; give your credentials with --command-config FILE"
        case AuthorizationError():
            return f"{message}; ask an administrator for the ACL, or use another user"
        case _:
            return f"{message} ({error.name})"
