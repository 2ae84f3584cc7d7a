"""Subcommands, their actions, and the arguments that several of them share.

A command is a module with `add_arguments(parser)` and `run(arguments)`. Only the module of the command on the command
line is imported, and `run` imports what it needs when it is called, so that `ottla --help` stays fast.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import ClassVar, NamedTuple


class CommandFailed(Exception):
    """A command failed; the message is one sentence for the user."""

    exit_code: ClassVar[int] = 1


class InvalidUsage(CommandFailed):
    """The arguments contradict each other, or a value is invalid."""

    exit_code = 2


class Command(NamedTuple):
    """One subcommand, and the module under `ottla.cli` that implements it."""

    name: str
    summary: str
    module: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Import the command and add its arguments to the parser."""
        module = import_module(f"ottla.cli.{self.module}")
        parser.set_defaults(run=getattr(module, "run", None))
        parser.epilog = getattr(module, "EXAMPLES", None)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        module.add_arguments(parser)


class Action(NamedTuple):
    """One action of a command, such as `list` of `ottla topic`."""

    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]
    """Raises CommandFailed."""
    examples: str = ""


def add_actions(parser: argparse.ArgumentParser, actions: Sequence[Action]) -> None:
    """Add a parser for each action."""
    subparsers = parser.add_subparsers(metavar="ACTION", required=True)
    for action in actions:
        subparser = subparsers.add_parser(
            action.name,
            help=action.summary,
            description=action.summary,
            epilog=action.examples,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        action.add_arguments(subparser)
        subparser.set_defaults(run=action.run)


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for a node's configuration."""
    parser.add_argument("-c", "--config", metavar="FILE", help="server.properties (default: a one-node cluster)")
    add_overrides(parser)


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add `--set`."""
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=setting,
        dest="overrides",
        help="a setting that overrides the file; may be repeated",
    )


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value


def natural(text: str) -> int:
    """Parse a number that may be 0, such as an offset or a partition."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} must be a number, at least 0")
    return int(text)


def positive(text: str) -> int:
    """Parse a number of at least 1, such as a count."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number, at least 1")
    return int(text)


def overrides(arguments: argparse.Namespace) -> Mapping[str, str]:
    return dict(arguments.overrides)
