"""Registers a project's definitions with Spark: it runs Python files and passes on SQL files.

An error in a definition is reported with its file and line.
"""

import contextlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.flow import Flow
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.output import Output, Table
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.sql import DataFrame

from ottla.spark.pipelines.failures import summarize_error
from ottla.spark.pipelines.project import Project, ProjectError
from ottla.spark.pipelines.topics import TopicSource, tables_read, topic_sources

_FILES: Final = ("parquet", "orc", "json", "csv", "text", "avro", "xml")


class Registry(SparkConnectGraphElementRegistry):
    """Spark's registry, extended to record which topics and tables each flow reads."""

    def __init__(self, spark: Any, graph: str, default_format: str, short: Callable[[str], str]) -> None:
        """`default_format` applies to tables without a format; `short` maps the names of a dataset to one of them."""
        super().__init__(spark, graph)
        self._default_format = default_format
        self._short = short
        self._file_tables: set[str] = set()
        self._writers: dict[str, str] = {}
        self.sources: dict[str, list[TopicSource]] = {}
        self.has_other_sources = False
        self._tables: dict[str, set[str]] = {}
        self._targets: dict[str, str] = {}

    @property
    def inputs(self) -> dict[str, set[str]]:
        """For each flow, the flows that write the tables it reads."""
        writers: dict[str, set[str]] = {}
        for flow, target in self._targets.items():
            writers.setdefault(target, set()).add(flow)
        return {
            flow: {writer for table in tables for writer in writers.get(table, ())}
            for flow, tables in self._tables.items()
        }

    def with_readers(self, flows: Set[str]) -> set[str]:
        """Return flows together with all flows that read their output, directly or indirectly."""
        reached, inputs = set(flows), self.inputs
        while more := {flow for flow, writers in inputs.items() if flow not in reached and writers & reached}:
            reached |= more
        return reached

    def register_output(self, output: Output) -> None:
        if isinstance(output, Table) and (output.format or self._default_format).lower() in _FILES:
            self._file_tables.add(output.name)
        super().register_output(output)

    def register_flow(self, flow: Flow) -> None:
        other = self._writers.setdefault(flow.target, flow.name)
        if other != flow.name and flow.target in self._file_tables:
            # Each stream numbers its batches in the table's own log, so Spark would skip those of the second stream.
            raise ProjectError(
                f"flows {other} and {flow.name} both write to table {flow.target}, but a file format takes only one "
                "stream, and rows of the other would be lost. Give each flow a table, or union them in one flow"
            )
        results: list[Any] = []

        def query() -> DataFrame:
            rows = flow.func()
            results.append(rows)
            return rows

        super().register_flow(replace(flow, func=query))
        plan = results[-1]._plan.plan(self._client)
        self.sources[flow.name], others = topic_sources(plan)
        name = self._short(flow.name)
        self._tables[name] = {self._short(table) for table in tables_read(plan)}
        self._targets[name] = self._short(flow.target)
        self.has_other_sources = self.has_other_sources or others


def register_definitions(project: Project, spark: Any, graph: str, short: Callable[[str], str]) -> Registry:
    """Register all definitions with Spark; raise ProjectError."""
    registry = Registry(spark, graph, project.configuration.get("spark.sql.sources.default", "parquet"), short)
    files = _find_files(project)
    with _working_directory(project.folder), graph_element_registration_context(registry):
        for file in files:
            try:
                if file.suffix == ".py":
                    _run(file, spark, graph)
                else:
                    registry.register_sql(file.read_text(), file.relative_to(project.folder))
            except ProjectError as error:
                raise ProjectError(f"{_location(file, error)}: {error}") from error
            except PySparkException as error:
                raise ProjectError(f"{_location(file, error)}: {summarize_error(str(error))}") from error
            except Exception as error:
                # A definition may raise anything, and its author needs to see it. The cause has the traceback.
                message = error.msg if isinstance(error, SyntaxError) else f"{type(error).__name__}: {error}"
                raise ProjectError(f"{_location(file, error)}: {message}") from error
    return registry


def _find_files(project: Project) -> list[Path]:
    files: list[Path] = []
    for pattern in project.libraries:
        matching = sorted(path for path in project.folder.glob(pattern) if _is_definition(path))
        if not matching:
            raise ProjectError(f"{project.spec}: libraries: no file matches {pattern!r}; correct the pattern")
        files += [path for path in matching if path not in files]
    for file in files:
        if file.suffix not in (".py", ".sql"):
            raise ProjectError(f"{file}: definitions are .py and .sql files; move the file out of the libraries")
    return files


def _is_definition(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts[-1:])
    return path.is_file() and "__pycache__" not in path.parts and not hidden


def _run(file: Path, spark: Any, graph: str) -> None:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None, "the file ends in .py"
    assert spec.loader is not None, "a file has a loader"
    module = importlib.util.module_from_spec(spec)
    module.__dict__["spark"] = spark
    with add_pipeline_analysis_context(spark=spark, dataflow_graph_id=graph, flow_name=None), block_session_mutations():
        spec.loader.exec_module(module)


def _location(file: Path, error: BaseException) -> str:
    """Return the file's name and the line in it that led to the error."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines.append(error.lineno)
    return f"{file.name}, line {lines[-1]}" if lines else file.name


@contextlib.contextmanager
def _working_directory(folder: Path) -> Iterator[None]:
    """Run definitions in their project's folder, from which they may import modules."""
    before = Path.cwd()
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))
