"""`ottla table run`: one Spark session with a query for each table."""

import argparse
import contextlib
import signal
import sys
from typing import TYPE_CHECKING

from ottla.cli.output import counted

if TYPE_CHECKING:
    from ottla.spark.tables.definition import Definition, TableHome
    from ottla.spark.tables.table_writer import BatchResult


def run_tables(arguments: argparse.Namespace, home: "TableHome") -> None:
    """Write new records into the tables, once or until interrupted."""
    from ottla.spark.tables.failures import TableError
    from ottla.spark.tables.maintenance import MaintenancePolicy
    from ottla.spark.tables.query import TableQuery, run_queries
    from ottla.spark.tables.spark_engine import start_session

    names = arguments.names or home.names()
    if not names:
        raise TableError(f"there are no tables in {home.folder}; create one with `ottla table create`")
    definitions = [home.load(name) for name in names]
    upkeep = MaintenancePolicy(arguments.small_files, arguments.keep_snapshots, arguments.snapshot_age)
    signal.signal(signal.SIGTERM, _interrupt)
    with contextlib.ExitStack() as locks:
        for name in names:
            locks.enter_context(home.lock(name))
        log = home.folder / "logs" / "spark.log"
        session = start_session(arguments.master, dict(arguments.spark), log)
        try:
            queries = [
                TableQuery(
                    session,
                    home,
                    definition,
                    max_records=arguments.max_records,
                    interval_s=None if arguments.once else arguments.interval,
                    skip_lost=arguments.skip_lost,
                    maintenance=upkeep,
                    on_batch=_tell,
                )
                for definition in definitions
            ]
            if not arguments.once:
                print(f"Writing to {', '.join(names)}; press Ctrl-C to stop. Spark's log is {log}", flush=True)
            run_queries(queries, lambda words: print(words, file=sys.stderr, flush=True))
        finally:
            session.stop()
    print(f"Up to date: {', '.join(names)}.")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _tell(definition: "Definition", done: "BatchResult") -> None:
    parts = [counted(done.rows, "row")]
    if done.dead:
        parts.append(counted(done.dead, "dead letter"))
    if done.rescued:
        parts.append(f"{counted(done.rescued, 'row')} with rescued values")
    if done.new_columns:
        parts.append(f"new columns {', '.join(done.new_columns)}")
    print(f"{definition.name}: {', '.join(parts)}", flush=True)
