"""Describes topics or groups by name, one after the other."""

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ottla.cli.connecting import add_connection, ask
from ottla.cli.output import print_json

if TYPE_CHECKING:
    from ottla.client.admin import Admin


def add_described(parser: argparse.ArgumentParser, kind: str) -> None:
    """Add the arguments of a command that describes."""
    parser.add_argument("names", metavar=kind.upper(), nargs="+")
    add_connection(parser)


def describe_named(
    arguments: argparse.Namespace,
    description: "Callable[[Admin, str], Awaitable[dict[str, Any]]]",
    show: Callable[[dict[str, Any]], None],
) -> None:
    """Describe the named objects as JSON, or as text with an empty line between them."""

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        return [await description(admin, name) for name in arguments.names]

    described = ask(arguments, work)
    if arguments.json:
        print_json(described)
        return
    for index, description_of_one in enumerate(described):
        if index:
            print()
        show(description_of_one)
