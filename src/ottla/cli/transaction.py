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
    transactions = ask(
        arguments,
        lambda admin: admin.transactions(
            states=arguments.state,
            producer_ids=arguments.producer_id,
            longer_than_ms=-1 if longer_than is None else longer_than * 1000,
            pattern=arguments.pattern,
        ),
    )
    if arguments.json:
        print_json([transaction._asdict() for transaction in transactions])
    else:
        print_table(("TRANSACTIONAL ID", "COORDINATOR", "PRODUCER", "STATE"), transactions)


def _describe_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("transactional_id", metavar="ID")
    add_connection(parser)


def _describe(arguments: argparse.Namespace) -> None:
    transaction = ask(arguments, lambda admin: admin.transaction(arguments.transactional_id))
    if arguments.json:
        partitions = [{"topic": topic, "partition": number} for topic, number in transaction.partitions]
        print_json({**transaction._asdict(), "partitions": partitions})
        return
    print(f"Transactional id {transaction.transactional_id}: {_sentence(transaction)}")
    if transaction.partitions:
        print_table(("TOPIC", "PARTITION"), transaction.partitions)


def _sentence(transaction: "DescribedTransaction") -> str:
    producer = f"producer {transaction.producer_id} of epoch {transaction.producer_epoch}"
    text = f"{transaction.state}, {producer}, coordinator {transaction.coordinator}"
    if transaction.start_ms < 0:
        return text
    open_for_s = max(time.time() - transaction.start_ms / 1000, 0)
    since = f", since {show_time(transaction.start_ms)}"
    return (
        text
        + since
        + (f" ({open_for_s:.0f} of {transaction.timeout_ms / 1000:g} s)" if transaction.state == "Ongoing" else "")
    )


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
