"""What a subcommand is, and what several of them share.

A command is a module with `add_arguments(parser)`; what the parser's defaults name `run` does the work, and imports
what it needs when it is called. Modules of commands that were not typed are not even imported.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import ClassVar, NamedTuple


class CommandFailed(Exception):
    """A command could not do what was asked; the message is one sentence for the one who typed it."""

    exit_code: ClassVar[int] = 1


class NotUnderstood(CommandFailed):
    """The arguments do not go together."""

    exit_code = 2


class Command(NamedTuple):
    """One subcommand, and the module under `ottla.cli` that is it."""

    name: str
    summary: str
    module: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Import the command and let it say what it takes."""
        module = import_module(f"ottla.cli.{self.module}")
        parser.set_defaults(run=getattr(module, "run", None))
        parser.epilog = getattr(module, "EXAMPLES", None)
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        module.add_arguments(parser)


class Action(NamedTuple):
    """What a command that is a group can do."""

    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]
    """Raises CommandFailed."""
    examples: str = ""


def add_actions(parser: argparse.ArgumentParser, actions: Sequence[Action]) -> None:
    """A parser for each action."""
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
    """Where a node's configuration comes from."""
    parser.add_argument("-c", "--config", metavar="FILE", help="server.properties; without it, a one-node cluster")
    add_overrides(parser)


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Settings on the command line."""
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=setting,
        dest="overrides",
        help="a setting, in front of what the file says; may be repeated",
    )


def setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not a name, an equals sign and a value")
    return name.strip(), value


def natural(text: str) -> int:
    """A number from nought on, such as an offset or a partition."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def positive(text: str) -> int:
    """A number from one on, such as a count."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def overrides(arguments: argparse.Namespace) -> Mapping[str, str]:
    return dict(arguments.overrides)
