"""Shows runs of a pipeline: a line for each flow, redrawn on a terminal; elsewhere a line for each change."""

import json
import sys
import time
from collections.abc import Iterable
from typing import Any, ClassVar

from ottla.cli.output import show

_MARKS = {"completed": "done", "failed": "FAILED"}


class FlowView:
    """The state of one flow in a run: records that a stream has read, rows of a view."""

    TITLES: ClassVar = ("FLOW", "STATE", "READ", "ROWS", "NOT AS EXPECTED", "LAG")

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = "defined"
        self.read: int | None = None
        self.rows: int | None = None
        self.unmet: dict[str, tuple[str, int]] = {}
        self.lag: int | None = None

    def cells(self) -> tuple[object, ...]:
        unmet = "; ".join(f"{rows} {_done(action)} ({name})" for name, (action, rows) in self.unmet.items() if rows)
        return self.name, _MARKS.get(self.state, self.state), self.read, self.rows, unmet, self.lag

    def as_json(self) -> dict[str, Any]:
        unmet = [{"expectation": name, "action": action, "rows": rows} for name, (action, rows) in self.unmet.items()]
        return {
            "flow": self.name,
            "state": self.state,
            "read": self.read,
            "rows": self.rows,
            "not as expected": unmet,
            "lag": self.lag,
        }


class RunView:
    """The state of one run."""

    def __init__(self, event: dict[str, Any]) -> None:
        self.id = event["run"]
        self.began = event["time"]
        self.outcome: str | None = None
        self.seconds: float | None = None
        self.flows: dict[str, FlowView] = {}
        self.problems: list[str] = []

    def take(self, event: dict[str, Any]) -> None:
        """Apply an event; unknown events are ignored."""
        kind = event.get("event")
        if kind == "flows defined":
            for name in event["flows"]:
                self._flow(name)
        elif kind == "flow":
            self._flow(event["flow"]).state = event["state"]
        elif kind == "progress":
            flow = self._flow(event["flow"])
            flow.read = (flow.read or 0) + event["rows"]
            for name, about in event.get("unmet", {}).items():
                before = flow.unmet.get(name, ("", 0))[1]
                flow.unmet[name] = about["action"], before + about["rows"]
        elif kind == "view":
            self._flow(event["flow"]).rows = event["rows"]
        elif kind == "lag":
            self._flow(event["flow"]).lag = event["lag"]
        elif kind == "run finished":
            self.outcome, self.seconds = event["outcome"], event["seconds"]
            if event.get("problem"):
                self.problems.append(event["problem"])

    def _flow(self, name: str) -> FlowView:
        return self.flows.setdefault(name, FlowView(name))

    def summary(self) -> str:
        """Return the outcome in a few words."""
        if self.outcome is None:
            return f"started at {self.began} and did not finish"
        return f"{self.outcome} after {self.seconds:g} s"

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.id,
            "began": self.began,
            "outcome": self.outcome,
            "seconds": self.seconds,
            "flows": [flow.as_json() for flow in self.flows.values()],
            "problems": self.problems,
        }


def gather(events: Iterable[dict[str, Any]]) -> list[RunView]:
    """Return the runs of an event log, oldest first."""
    runs: dict[str, RunView] = {}
    for event in events:
        run = event.get("run")
        if event.get("event") == "run started":
            runs[str(run)] = RunView(event)
        elif run in runs:
            runs[str(run)].take(event)
    return list(runs.values())


class View:
    """Shows a run while it is in progress."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._is_drawn_over = sys.stdout.isatty() and not as_json
        self._drawn = 0
        self._run: RunView | None = None
        self._began_s = time.monotonic()

    def print(self, line: str) -> None:
        """Print a line that stays above the redrawn ones."""
        self._clear()
        print(line, file=sys.stderr if self._as_json else sys.stdout, flush=True)

    def take(self, event: dict[str, Any]) -> None:
        if self._as_json:
            print(json.dumps(event, ensure_ascii=False), flush=True)
            return
        if event["event"] == "run started":
            self._run, self._began_s = RunView(event), time.monotonic()
            return
        if self._run is None:
            return
        self._run.take(event)
        if event["event"] == "run finished":
            self._clear()
            self._print_table()
            print(f"run {self._run.summary()}", flush=True)
        elif self._is_drawn_over:
            self._clear()
            self._drawn = self._print_table() + 1
            print(f"{time.monotonic() - self._began_s:.0f} s", flush=True)
        else:
            self._print_change(event)

    def _print_change(self, event: dict[str, Any]) -> None:
        since = f"{time.monotonic() - self._began_s:5.1f} s"
        if event["event"] == "flow" and event["state"] in ("running", "completed", "failed"):
            print(f"{since}  {event['flow']}: {_MARKS.get(event['state'], event['state'])}", flush=True)
        elif event["event"] == "progress" and event["rows"]:
            print(f"{since}  {event['flow']}: {event['rows']:,} rows read", flush=True)

    def _print_table(self) -> int:
        """Print the flows and return the number of lines."""
        assert self._run is not None
        if not self._run.flows:
            return 0
        rows = [[*FlowView.TITLES], *([show(cell) for cell in flow.cells()] for flow in self._run.flows.values())]
        widths = [max(len(row[column]) for row in rows) for column in range(len(FlowView.TITLES))]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return len(rows)

    def _clear(self) -> None:
        if self._drawn:
            print(f"\x1b[{self._drawn}F\x1b[J", end="")
            self._drawn = 0


def _done(action: str) -> str:
    return {"warn": "kept", "drop": "dropped", "fail": "failed", "dead letter": "put aside"}.get(action, action)
