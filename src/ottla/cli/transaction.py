"""`ottla transaction`: list, describe and abort transactions."""

import argparse
import time
from typing import TYPE_CHECKING, TypeVar

from ottla.cli.command import Action, InvalidUsage, add_actions, natural
from ottla.cli.connecting import add_connection, ask
from ottla.cli.output import print_json, print_table, show_time

if TYPE_CHECKING:
    from ottla.client.transaction_calls import DescribedTransaction

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, ACTIONS)


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", action="append", default=[], help="only transactions in this state, such as Ongoing; may be repeated"
    )
    parser.add_argument(
        "--producer-id", action="append", default=[], type=natural, help="only this producer; may be repeated"
    )
    parser.add_argument(
        "--longer-than", metavar="SECONDS", type=natural, help="only transactions that are open for longer"
    )
    parser.add_argument("--pattern", metavar="REGEX", help="only ids that fully match this regular expression")
    add_connection(parser)


def _list(arguments: argparse.Namespace) -> None:
    longer_than = arguments.longer_than
    found = ask(
        arguments,
        lambda admin: admin.transactions(
            states=arguments.state,
            producer_ids=arguments.producer_id,
            longer_than_ms=-1 if longer_than is None else longer_than * 1000,
            pattern=arguments.pattern,
        ),
    )
    if arguments.json:
        print_json([each._asdict() for each in found])
    else:
        print_table(("TRANSACTIONAL ID", "COORDINATOR", "PRODUCER", "STATE"), found)


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("transactional_id", metavar="ID")
    add_connection(parser)


def _describe(arguments: argparse.Namespace) -> None:
    found = ask(arguments, lambda admin: admin.transaction(arguments.transactional_id))
    if arguments.json:
        partitions = [{"topic": topic, "partition": number} for topic, number in found.partitions]
        print_json({**found._asdict(), "partitions": partitions})
        return
    print(f"Transactional id {found.transactional_id}: {_sentence(found)}")
    if found.partitions:
        print_table(("TOPIC", "PARTITION"), found.partitions)


def _sentence(found: "DescribedTransaction") -> str:
    text = f"{found.state}, producer {found.producer_id} of epoch {found.producer_epoch}, broker {found.coordinator}"
    if found.start_ms < 0:
        return text
    open_for_s = max(time.time() - found.start_ms / 1000, 0)
    since = f", since {show_time(found.start_ms)}"
    return text + since + (f" ({open_for_s:.0f} of {found.timeout_ms / 1000:g} s)" if found.state == "Ongoing" else "")


def _abort_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("transactional_id", metavar="ID", nargs="?", help="fence the producer of this transactional id")
    group = parser.add_argument_group("a hanging transaction, which its coordinator does not know any more")
    group.add_argument("--topic")
    group.add_argument("--partition", type=natural)
    group.add_argument("--start-offset", type=natural, help="the first offset of the transaction")
    add_connection(parser, json=False)


def _abort(arguments: argparse.Namespace) -> None:
    hanging = (arguments.topic, arguments.partition, arguments.start_offset)
    if arguments.transactional_id is not None and hanging == (None, None, None):
        ask(arguments, lambda admin: admin.abort_transaction(arguments.transactional_id))
        print(f"Aborted the open transaction of {arguments.transactional_id}, and fenced its producer.")
    elif arguments.transactional_id is None and None not in hanging:
        producer = ask(arguments, lambda admin: admin.abort_hanging_transaction(*hanging))
        print(f"Aborted the transaction of producer {producer} on {arguments.topic}-{arguments.partition}.")
    else:
        raise InvalidUsage("give either a transactional id, or --topic, --partition and --start-offset")


ACTIONS = (
    Action("list", "List transactional ids.", _list_arguments, _list, "  ottla transaction list --state Ongoing"),
    Action("describe", "Show a transaction and its partitions.", _describe_arguments, _describe),
    Action("abort", "End an open transaction.", _abort_arguments, _abort, "  ottla transaction abort payments-1"),
)
