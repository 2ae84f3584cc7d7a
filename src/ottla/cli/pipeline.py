"""`ottla pipeline`: create, run, inspect and stop declarative pipelines on Spark."""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command import Action, CommandFailed, InvalidUsage, add_actions
from ottla.cli.output import counted, print_json, print_table
from ottla.cli.pipeline_view import FlowView, View, gather

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.spark.pipelines.project import Project
    from ottla.spark.pipelines.server import Server

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RUN_EXAMPLES = """examples:
  ottla pipeline run
  ottla pipeline run shop --every 1m
  ottla pipeline run --on spark://cluster:7077 --full-refresh totals
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, ACTIONS)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", default=".", help="the project's folder (default: the current one)"
    )


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a new folder")
    parser.add_argument("--topic", metavar="NAME", default="orders", help="the topic to read (default: %(default)s)")
    parser.add_argument(
        "-b", "--bootstrap-server", metavar="HOST:PORT,...", default="localhost:9092", help="default: %(default)s"
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    parser.add_argument("--on", metavar="SPARK", help="where Spark runs: local[*], a master, or sc://host:port")
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--every", metavar="TIME", type=_interval_s, help="repeat the run after this time, such as 30s, 5m or 1h"
    )
    when.add_argument("--continuous", action="store_true", help="run again whenever topics have new records")
    parser.add_argument("--refresh", metavar="DATASET,...", type=_names, default=[], help="update only these datasets")
    parser.add_argument(
        "--full-refresh", metavar="DATASET,...", type=_names, default=[], help="recompute these datasets"
    )
    parser.add_argument("--full-refresh-all", action="store_true", help="recompute all datasets")
    parser.add_argument("--dry", action="store_true", help="only validate the definitions")
    parser.add_argument("--json", action="store_true", help="print events, one JSON object a line")


def _add_status(parser: argparse.ArgumentParser) -> None:
    _add_folder(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _interval_s(text: str) -> float:
    matched = re.fullmatch(r"(\d+)([smhd])", text)
    if not matched or not int(matched[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 30s, 5m or 1h")
    return int(matched[1]) * _UNITS_S[matched[2]]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _on_spark(work: "Callable[[argparse.Namespace], None]") -> "Callable[[argparse.Namespace], None]":
    """Wrap an action so that it names the package to install if Spark is missing."""

    def run(arguments: argparse.Namespace) -> None:
        try:
            work(arguments)
        except ImportError as error:
            raise CommandFailed(
                f"pipelines need Spark ({error.name} is not installed); run: pip install 'ottla[spark]'"
            ) from error

    return run


def _project(folder: str, on: str | None = None) -> "Project":
    from ottla.spark.pipelines.project import ProjectError, find_project

    try:
        return find_project(Path(folder), spark=on)
    except ProjectError as error:
        raise CommandFailed(str(error)) from error


def _init(arguments: argparse.Namespace) -> None:
    from ottla.spark.pipelines.project import ProjectError
    from ottla.spark.pipelines.template import make_project

    folder = Path(arguments.folder)
    try:
        files = make_project(
            folder, name=folder.resolve().name, topic=arguments.topic, servers=arguments.bootstrap_server
        )
    except ProjectError as error:
        raise CommandFailed(str(error)) from error
    for file in files:
        print(f"created {file}")
    print(f"`ottla pipeline run {folder}` reads topic {arguments.topic} of {arguments.bootstrap_server}")


def _run(arguments: argparse.Namespace) -> None:
    project = _project(arguments.folder, arguments.on)
    if arguments.full_refresh_all and (arguments.full_refresh or arguments.refresh):
        raise InvalidUsage("--full-refresh-all covers all datasets; remove --refresh and --full-refresh")
    from ottla.spark.pipelines.run import RunOptions
    from ottla.spark.pipelines.schedule import FAILURES, Runner, Schedule

    view = View(as_json=arguments.json)
    options = RunOptions(arguments.refresh, arguments.full_refresh, arguments.full_refresh_all, arguments.dry)
    try:
        Runner(project, view.take, view.print).run(options, Schedule(arguments.every, arguments.continuous))
    except FAILURES as error:
        raise CommandFailed(str(error)) from error


def _status(arguments: argparse.Namespace) -> None:
    project = _project(arguments.folder)
    from ottla.spark.pipelines.events import read_events
    from ottla.spark.pipelines.schedule import is_running
    from ottla.spark.pipelines.server import ServerHome

    server = None if project.is_remote else ServerHome(project).find()
    runs = gather(read_events(project.event_log))
    if arguments.json:
        last = runs[-1].as_json() if runs else None
        print_json(
            {"pipeline": project.name, "spark": project.shown_spark, "server": _server_json(server), "last run": last}
        )
        return
    print(f"Pipeline {project.name} in {project.folder}, on {project.shown_spark}")
    print(_server_text(server, is_remote=project.is_remote))
    if not runs:
        print("The pipeline has not run yet.")
        return
    state = (
        "A run is in progress"
        if is_running(project) and runs[-1].outcome is None
        else f"Last run: {runs[-1].summary()}"
    )
    print(f"{state}, {counted(len(runs), 'run')} in the event log {project.event_log}")
    print_table(FlowView.TITLES, [flow.cells() for flow in runs[-1].flows.values()])
    for problem in runs[-1].problems:
        print(problem)


def _server_json(server: "Server | None") -> dict[str, object] | None:
    return None if server is None else {"pid": server.pid, "port": server.port, "ui": server.ui, "spark": server.spark}


def _server_text(server: "Server | None", *, is_remote: bool) -> str:
    if is_remote:
        return "Spark is a remote Connect server."
    if server is None:
        return "Spark is not running; the next run starts it."
    return f"Spark is running: process {server.pid}" + (f", UI at {server.ui}" if server.ui else "")


def _stop(arguments: argparse.Namespace) -> None:
    project = _project(arguments.folder)
    from ottla.spark.pipelines.schedule import stop_runner
    from ottla.spark.pipelines.server import ServerFailed, ServerHome

    try:
        had_runner = stop_runner(project)
        had_server = ServerHome(project).stop()
    except ServerFailed as error:
        raise CommandFailed(str(error)) from error
    if had_runner:
        print(f"Stopped the run of {project.name}.")
    print("Stopped Spark." if had_server else "Spark was not running.")


ACTIONS = (
    Action("init", "Create a project with a small pipeline.", _add_init, _on_spark(_init)),
    Action(
        "run",
        "Update a pipeline's datasets: once, at intervals, or continuously.",
        _add_run,
        _on_spark(_run),
        _RUN_EXAMPLES,
    ),
    Action("status", "Show the last run: flows, rows, lag, failures.", _add_status, _on_spark(_status)),
    Action("stop", "Stop the run of a pipeline and its Spark server.", _add_folder, _on_spark(_stop)),
)
