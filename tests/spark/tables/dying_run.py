"""A run of a table in a process of its own, which is killed at a moment that its caller has chosen.

    python -m tests.spark.tables.dying_run HOME TABLE MOMENT COUNT

Moments: `files` (written, not committed), `letters` (dead letters committed, rows not), `commit` (committed, Spark does
not know yet), `never`. COUNT says at which of them.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.spark.tables.definition import Definition, TableHome
from ottla.spark.tables.maintenance import Upkeep
from ottla.spark.tables.query import TableQuery, keep_tables
from ottla.spark.tables.spark import start_session
from ottla.spark.tables.store import Store


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def watched(real: Callable[..., Any], moment: str, count: int, *, rows: bool) -> Callable[..., Any]:
    left = [count]

    def commit(self: Any, *arguments: Any, **named: Any) -> Any:
        mine = self.location.endswith("_dead_letters") != rows
        if mine:
            left[0] -= 1
        if mine and moment == "files" and left[0] == 0:
            die()
        found = real(self, *arguments, **named)
        if mine and moment in ("letters", "commit") and left[0] == 0:
            die()
        return found

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
        Store.commit = watched(Store.commit, moment, int(count), rows=moment != "letters")  # type: ignore[method-assign]
    with home.lock(name):
        query = TableQuery(
            session,
            home,
            definition,
            max_records=200,
            interval_s=None,
            upkeep=Upkeep(small_files=4),
            told=lambda *_: None,
        )
        keep_tables([query], print)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
