"""Runs a table in its own process, and kills the process at a given moment.

    python -m tests.spark.tables.dying_run HOME TABLE MOMENT COUNT

Moments: `files` (written, not committed), `letters` (dead letters committed, rows not), `commit` (rows committed, the
query not informed), `never`. The process dies at the COUNT-th such moment.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.spark.tables.definition import Definition, TableHome
from ottla.spark.tables.maintenance import MaintenancePolicy
from ottla.spark.tables.query import TableQuery, run_queries
from ottla.spark.tables.spark_engine import start_session
from ottla.spark.tables.store import Store


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(real: Callable[..., Any], moment: str, count: int, *, rows: bool) -> Callable[..., Any]:
    left = [count]

    def commit(self: Any, *arguments: Any, **named: Any) -> Any:
        is_watched = self.location.endswith("_dead_letters") != rows
        if is_watched:
            left[0] -= 1
        if is_watched and moment == "files" and left[0] == 0:
            die()
        result = real(self, *arguments, **named)
        if is_watched and moment in ("letters", "commit") and left[0] == 0:
            die()
        return result

    return commit


def main(folder: str, name: str, moment: str, count: str) -> None:
    home = TableHome(Path(folder))
    definition: Definition = home.load(name)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
    }
    settings["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    session = start_session("local[2]", settings, home.folder / "logs" / "spark.log")
    if moment != "never":
        Store.commit = dying(Store.commit, moment, int(count), rows=moment != "letters")  # type: ignore[method-assign]
    with home.lock(name):
        query = TableQuery(
            session,
            home,
            definition,
            max_records=200,
            interval_s=None,
            maintenance=MaintenancePolicy(small_files=4),
            on_batch=lambda *_: None,
        )
        run_queries([query], print)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
