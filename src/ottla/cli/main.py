"""`ottla`: finds the subcommand, runs it, and says in one sentence what went wrong.

Exit codes: 0 done, 1 it could not be done, 2 the command was not understood, 130 it was interrupted.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from ottla import __version__
from ottla.cli.command import Command, CommandFailed

COMMANDS: tuple[Command, ...] = (
    Command("serve", "Run a node: broker, controller, or both.", "serve"),
    Command("format", "Make the directories of a new node.", "format_command"),
    Command("topic", "List, create, describe, change and delete topics.", "topic"),
    Command("produce", "Write lines to a topic.", "produce"),
    Command("consume", "Read a topic.", "consume"),
    Command("config", "Look at settings of topics, brokers and the cluster, and change them.", "config"),
    Command("log", "Sizes on disk, offsets, deletion of old records, and a dump of segment files.", "log"),
    Command("cluster", "Run a cluster on this machine; look at one: its brokers, features and quorum.", "cluster"),
    Command("group", "List and describe groups, set how far they have read, delete them.", "group"),
    Command("transaction", "List, describe and abort transactions.", "transaction"),
    Command("table", "Topics as tables: Iceberg, Delta or Parquet, kept in step by Spark.", "table"),
    Command("pipeline", "Declarative pipelines on Spark: make, run, look at, stop.", "pipeline"),
    Command("random-uuid", "Print a random id for a cluster or a directory.", "random_uuid"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parsed = make_parser(words).parse_args(words)
    try:
        parsed.run(parsed)
        sys.stdout.flush()
    except CommandFailed as failed:
        sys.stdout.flush()
        print(f"ottla {parsed.command}: {failed}", file=sys.stderr)
        return failed.exit_code
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing may be written when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def make_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of a command line: only the command that it names is told of its arguments."""
    parser = argparse.ArgumentParser(
        prog="ottla", description="A streaming platform that speaks Apache Kafka's protocol.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, dest="command")
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name, help=command.summary, description=command.summary, allow_abbrev=False
        )
        if command.name in words:
            command.add_arguments(subparser)
    return parser
