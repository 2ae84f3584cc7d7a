"""Deletes topics or groups by name, one after the other."""

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.cli.connecting import add_connection, ask
from ottla.cli.output import print_json

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.protocol.errors import ApiError


def add_names(parser: argparse.ArgumentParser, kind: str) -> None:
    """Add the arguments of a command that deletes."""
    parser.add_argument("names", metavar=kind.upper(), nargs="+")
    parser.add_argument("--if-exists", action="store_true", help=f"ignore a {kind} that does not exist")
    add_connection(parser)


def delete_named(
    arguments: argparse.Namespace,
    kind: str,
    delete: "Callable[[Admin, str], Awaitable[None]]",
    missing: "type[ApiError]",
) -> None:
    """Delete the named objects and print their names. A missing one is an error without `--if-exists`."""

    async def work(admin: "Admin") -> list[str]:
        deleted = []
        for name in arguments.names:
            try:
                await delete(admin, name)
            except missing:
                if not arguments.if_exists:
                    raise
                continue
            deleted.append(name)
            if not arguments.json:
                print(f"Deleted {kind} {name}.")
        return deleted

    deleted = ask(arguments, work)
    if arguments.json:
        print_json(deleted)
