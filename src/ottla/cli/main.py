"""`ottla`: finds the subcommand, runs it, and reports a failure in one sentence.

Exit codes: 0 success, 1 the command failed, 2 the command line is invalid, 130 the command was interrupted.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from ottla import __version__
from ottla.cli.command import Command, CommandFailed

COMMANDS: tuple[Command, ...] = (
    Command("serve", "Run a node: broker, controller, or both.", "serve"),
    Command("format", "Format the log directories of a new node.", "format_command"),
    Command("topic", "List, create, describe, change and delete topics.", "topic"),
    Command("produce", "Write lines to a topic.", "produce"),
    Command("consume", "Read a topic.", "consume"),
    Command("config", "Show and change settings of topics, groups, brokers and the cluster.", "config"),
    Command("log", "Show sizes and offsets of logs, delete old records, and dump segment files.", "log"),
    Command("cluster", "Run a cluster on this machine, and show the state of any cluster.", "cluster"),
    Command("group", "List, describe and delete groups, and reset their offsets.", "group"),
    Command("transaction", "List, describe and abort transactions.", "transaction"),
    Command("table", "Maintain Iceberg, Delta and Parquet tables from topics, on Spark.", "table"),
    Command("pipeline", "Create, run, inspect and stop declarative pipelines on Spark.", "pipeline"),
    Command("random-uuid", "Generate a random id for a cluster or a directory.", "random_uuid"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
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
        # The reader of the pipe has closed it, so nothing may be written when the process ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def make_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser; import only the command that the command line names."""
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
