"""`ottla table`: maintain tables from topics, on Spark."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.command import Action, CommandFailed, add_actions, positive, setting
from ottla.cli.connecting import DEFAULT, VARIABLE
from ottla.cli.output import counted, print_json, print_table, show_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from ottla.spark.tables.definition import Definition, TableHome
    from ottla.spark.tables.table_writer import TableWriter

    T = TypeVar("T")

HOME = "OTTLA_TABLES"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, ACTIONS)


def _add_home(parser: argparse.ArgumentParser, *, json: bool = False) -> None:
    parser.add_argument(
        "--home",
        metavar="DIR",
        help=f"the folder with the definitions of tables (default: ${HOME}, or in the user's data folder)",
    )
    if json:
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _home(arguments: argparse.Namespace) -> "TableHome":
    from pathlib import Path

    from ottla.config.defaults import data_directory
    from ottla.spark.tables.definition import TableHome

    folder = arguments.home or os.environ.get(HOME)
    return TableHome(Path(folder) if folder else data_directory() / "tables")


def _run_reporting(work: "Callable[[], T]") -> "T":
    """Run the work; an error becomes one sentence."""
    from importlib.util import find_spec

    for name in ("pyarrow", "pyspark", "pyiceberg", "deltalake"):
        if find_spec(name) is None:
            raise CommandFailed(f"tables need {name}, which is not installed; run: pip install 'ottla[tables]'")
    from ottla.cli.connecting import explain
    from ottla.protocol.errors import ApiError
    from ottla.spark.connector.option_values import OptionError
    from ottla.spark.connector.range_reader import DataLost
    from ottla.spark.tables.failures import TableError, TransientTableError

    try:
        return work()
    except (TableError, TransientTableError, OptionError, DataLost) as error:
        raise CommandFailed(str(error)) from error
    except ApiError as error:
        raise CommandFailed(explain(error, "the address in the table's definition")) from error
    except OSError as error:
        raise CommandFailed(f"{error.filename or 'a file'}: {error.strerror or error}") from error


def _add_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TABLE")
    parser.add_argument("--topic", required=True, help="the topic whose records become rows")
    parser.add_argument("--format", choices=("iceberg", "delta", "parquet"), default="iceberg")
    parser.add_argument(
        "--mode",
        choices=("append", "upsert"),
        default="append",
        help="append: one row for each record; upsert: the last record of each key",
    )
    parser.add_argument(
        "--partition-by",
        metavar="TRANSFORM",
        action="append",
        default=[],
        help="partition the table, for example by 'day(timestamp)', 'bucket(16, _key)' or country; may be repeated",
    )
    parser.add_argument(
        "--column",
        metavar="NAME=TYPE",
        action="append",
        default=[],
        type=setting,
        help="declare a column as boolean, long, double, string, timestamp or date; may be repeated",
    )
    parser.add_argument(
        "--key",
        choices=("string", "binary"),
        default="string",
        help="the type of the key column (default: %(default)s)",
    )
    parser.add_argument(
        "--values",
        choices=("json", "bytes"),
        default="json",
        help="json: fields of the value become columns; bytes: the value is one column (default: %(default)s)",
    )
    parser.add_argument("--from", choices=("earliest", "latest"), default="earliest", dest="start")
    _add_storage(parser)
    _add_client(parser)
    _add_home(parser)


def _add_storage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--location", metavar="DIR", help="the folder of a Delta or Parquet table")
    parser.add_argument(
        "--namespace", default="default", help="the namespace of an Iceberg table (default: %(default)s)"
    )
    parser.add_argument(
        "--catalog",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=setting,
        help="a property of the PyIceberg catalog, such as type=rest (default: a SQLite catalog in --home)",
    )


def _add_client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--client",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=setting,
        help="a client setting, such as isolation.level=read_uncommitted; may be repeated",
    )
    _add_client_file(parser)
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help=f"one or more brokers of the cluster (default: ${VARIABLE}, or {DEFAULT})",
    )


def _add_client_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="a properties file with client settings, read by each run; use it for passwords",
    )


def _absolute(file: str | None) -> str | None:
    return None if file is None else str(Path(file).absolute())


def _create(arguments: argparse.Namespace) -> None:
    def work() -> None:
        from ottla.spark.tables.definition import Definition
        from ottla.spark.tables.description import NoEngine
        from ottla.spark.tables.table_writer import TableWriter

        definition = Definition(
            name=arguments.name,
            topic=arguments.topic,
            servers=arguments.bootstrap_server or os.environ.get(VARIABLE) or DEFAULT,
            format=arguments.format,
            mode=arguments.mode,
            partition_by=tuple(arguments.partition_by),
            columns=dict(arguments.column),
            key=arguments.key,
            values=arguments.values,
            start=arguments.start,
            location=arguments.location,
            namespace=arguments.namespace,
            catalog=dict(arguments.catalog),
            client=dict(arguments.client),
            client_file=_absolute(arguments.command_config),
        )
        home = _home(arguments)
        home.check_new(definition)
        writer = TableWriter(home, definition, NoEngine())
        if writer.rows.exists():
            raise CommandFailed(
                f"there is already a table at {writer.rows.location}, which is not managed here;"
                " choose another name or --location"
            )
        home.save(definition)
        try:
            writer.open()
        except BaseException:
            home.remove(definition.name)
            raise
        print(
            f"Created table {definition.name}: {definition.format}, {definition.mode}, from topic {definition.topic}."
        )
        print(f"`ottla table run {definition.name}` maintains it; it is at {writer.rows.location}")

    _run_reporting(work)


def _list(arguments: argparse.Namespace) -> None:
    def work() -> "list[Definition]":
        home = _home(arguments)
        return [home.load(name) for name in home.names()]

    definitions = _run_reporting(work)
    home = _home(arguments)
    rows = [(table.name, table.topic, table.format, table.mode, home.is_locked(table.name)) for table in definitions]
    if arguments.json:
        titles = ("name", "topic", "format", "mode", "running")
        print_json([dict(zip(titles, row, strict=True)) for row in rows])
    elif rows:
        print_table(("TABLE", "TOPIC", "FORMAT", "MODE", "RUNNING"), rows)
    else:
        print("There are no tables.")


def _add_described(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="TABLE", nargs="+")
    _add_home(parser, json=True)


def _describe(arguments: argparse.Namespace) -> None:
    def work() -> list[dict[str, Any]]:
        from ottla.spark.tables.description import describe

        home = _home(arguments)
        return [describe(home, home.load(name)) for name in arguments.names]

    tables = _run_reporting(work)
    if arguments.json:
        print_json(tables)
        return
    for number, table in enumerate(tables):
        if number:
            print()
        _show(table)


def _show(table: dict[str, Any]) -> None:
    print(f"{table['name']}: {table['format']}, {table['mode']}, from topic {table['topic']} at {table['servers']}")
    if table["partition_by"]:
        print(f"  partitioned by {', '.join(table['partition_by'])}")
    if not table["made"]:
        print("  not created yet: `ottla table run` creates it")
        return
    print(f"  at {table['location']}")
    rows, files = counted(table["rows"], "row"), counted(table["files"], "file")
    print(f"  {rows} in {files}, {show_bytes(table['bytes'])}, {counted(table['snapshots'], 'snapshot')}")
    print(f"  {counted(table['dead_letters'], 'dead letter')}")
    if table.get("lag") is not None:
        print(f"  {counted(table['lag'], 'record')} behind; {'running' if table['running'] else 'not running'}")
    elif "problem" in table:
        print(f"  {table['problem']}")
    print_table(("COLUMN", "TYPE"), list(table["columns"].items()))
    offsets = sorted(table.get("offsets", {}).items())
    print_table(("PARTITION", "NEXT OFFSET"), offsets)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="TABLE", nargs="*", help="default: all tables")
    parser.add_argument("--once", action="store_true", help="read the records that exist now, then stop")
    parser.add_argument(
        "--interval", metavar="SECONDS", type=float, default=10.0, help="time between batches (default: %(default)s)"
    )
    parser.add_argument(
        "--max-records", metavar="N", type=positive, help="records in one batch (default: 5,000,000; upsert: 500,000)"
    )
    parser.add_argument(
        "--skip-lost", action="store_true", help="continue if records were deleted before they were read"
    )
    parser.add_argument("--master", default="local[*]", help="the Spark master (default: %(default)s)")
    parser.add_argument(
        "--spark",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=setting,
        help="a Spark setting; may be repeated",
    )
    parser.add_argument(
        "--small-files", metavar="N", type=positive, default=16, help="compact a partition once it has N small files"
    )
    parser.add_argument(
        "--keep-snapshots", metavar="N", type=positive, default=20, help="snapshots to keep (default: %(default)s)"
    )
    parser.add_argument(
        "--snapshot-age",
        metavar="SECONDS",
        type=float,
        default=3600.0,
        help="keep snapshots that are younger (default: %(default)s)",
    )
    _add_home(parser)


def _run(arguments: argparse.Namespace) -> None:
    from ottla.cli.table_run import run_tables

    home = _home(arguments)
    _run_reporting(lambda: run_tables(arguments, home))


def _with_table(arguments: argparse.Namespace, work: "Callable[[TableHome, TableWriter], None]") -> None:
    """Run the work on a table while holding its lock."""

    def locked() -> None:
        from ottla.spark.tables.description import NoEngine
        from ottla.spark.tables.table_writer import TableWriter

        home = _home(arguments)
        definition = home.load(arguments.name)
        with home.lock(definition.name):
            work(home, TableWriter(home, definition, NoEngine()))

    _run_reporting(locked)


def _add_alter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TABLE")
    parser.add_argument(
        "--mode", choices=("append", "upsert"), help="the mode from the next run on; existing rows stay"
    )
    parser.add_argument(
        "--accept-topic", action="store_true", help="continue with the recreated topic, from its beginning"
    )
    parser.add_argument("-b", "--bootstrap-server", metavar="HOST:PORT[,...]", help="the new address of the cluster")
    _add_client_file(parser)
    _add_home(parser)


def _alter(arguments: argparse.Namespace) -> None:
    options = {
        "mode": arguments.mode,
        "servers": arguments.bootstrap_server,
        "client_file": _absolute(arguments.command_config),
    }
    changes = {name: value for name, value in options.items() if value is not None}
    if not changes and not arguments.accept_topic:
        raise CommandFailed(
            "there is nothing to change; use --mode, --accept-topic, --bootstrap-server or --command-config"
        )

    def work(home: "TableHome", writer: "TableWriter") -> None:
        name = writer.definition.name
        if arguments.mode and writer.rows.exists() and (marks := writer.rows.state().marks):
            marks.check_mode(arguments.mode, name)
        if changes:
            from ottla.spark.tables.description import NoEngine
            from ottla.spark.tables.table_writer import TableWriter

            writer = TableWriter(home, home.change(name, **changes), NoEngine())
        if arguments.accept_topic:
            writer.accept_topic()
            print(f"Table {name} continues with topic {writer.definition.topic} from its beginning.")
        if arguments.mode:
            print(f"Table {name} uses mode {arguments.mode} from the next run on.")
        if arguments.bootstrap_server:
            print(f"Table {name} reads from {arguments.bootstrap_server}.")
        if arguments.command_config:
            print(f"Table {name} reads client settings from {writer.definition.client_file}.")

    _with_table(arguments, work)


def _add_drop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TABLE")
    parser.add_argument(
        "--keep-data", action="store_true", help="keep the table and its files, and only stop managing it"
    )
    _add_home(parser)


def _drop(arguments: argparse.Namespace) -> None:
    def work(home: "TableHome", writer: "TableWriter") -> None:
        if not arguments.keep_data:
            writer.rows.drop()
            writer.dead_letters.drop()
        home.remove(writer.definition.name)
        kept = "; its files stay" if arguments.keep_data else " with its files and dead letters"
        print(f"Dropped table {writer.definition.name}{kept}.")

    _with_table(arguments, work)


ACTIONS = (
    Action(
        "create",
        "Create a table from a topic.",
        _add_create,
        _create,
        "examples:\n"
        "  ottla table create orders --topic orders --format iceberg --partition-by 'day(timestamp)'\n"
        "  ottla table create customers --topic customers --format delta --mode upsert",
    ),
    Action("list", "List the tables.", lambda parser: _add_home(parser, json=True), _list),
    Action("describe", "Show columns, sizes, offsets and lag of tables.", _add_described, _describe),
    Action(
        "run",
        "Write new records into tables until stopped.",
        _add_run,
        _run,
        "examples:\n  ottla table run --once\n  ottla table run orders --interval 5 --master spark://host:7077",
    ),
    Action("alter", "Change a table's mode, topic or connection.", _add_alter, _alter),
    Action("drop", "Delete a table, or stop managing it.", _add_drop, _drop),
)
