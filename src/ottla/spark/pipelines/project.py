"""A pipeline's project: a folder with a spec file, as Spark's own `spark-pipelines` has it, and what Ottla keeps there.

    spark-pipeline.yml     name, storage, libraries, configuration
    transformations/       the definitions: Python and SQL
    .ottla/                the server's settings, catalog, logs and events

Beyond Spark, `storage` may be a folder of the project, and `configuration` may say by `ottla.spark` where Spark runs:
`local[*]`, the address of a master, or that of a Connect server (`sc://host:port`).
"""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

SPEC_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
WHERE_SETTING: Final = "ottla.spark"
EVERYWHERE: Final = "local[*]"
_FIELDS: Final = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")


class ProjectError(Exception):
    """A project that cannot be run as it is; the message says why, and where."""


class Project(NamedTuple):
    """One pipeline's folder, and what its spec says."""

    folder: Path
    spec: Path
    name: str
    storage: str
    catalog: str | None
    database: str | None
    configuration: Mapping[str, str]
    libraries: tuple[str, ...]
    spark: str

    @property
    def home(self) -> Path:
        """What Ottla keeps."""
        return self.folder / ".ottla"

    @property
    def event_log(self) -> Path:
        return self.home / "events.jsonl"

    @property
    def shown_spark(self) -> str:
        """Where Spark runs, without what only it may know: an address may hold a token."""
        return self.spark.partition("/;")[0]

    @property
    def is_remote(self) -> bool:
        """Whether Spark is somebody else's Connect server."""
        return self.spark.startswith("sc://")

    @property
    def is_local(self) -> bool:
        """Whether Spark runs in one process on this machine."""
        return self.spark.startswith("local")


def find_project(where: Path, *, spark: str | None = None) -> Project:
    """The project in a folder or above it; raises ProjectError. `spark` goes before the setting."""
    start = where.resolve()
    for folder in (start, *start.parents):
        found = [folder / name for name in SPEC_NAMES if (folder / name).is_file()]
        if len(found) > 1:
            raise ProjectError(f"{folder} has both {' and '.join(SPEC_NAMES)}; one of them must go")
        if found:
            return _read(found[0], spark)
    raise ProjectError(f"there is no {SPEC_NAMES[0]} in {start} or above it; `ottla pipeline init` makes a project")


def _read(spec: Path, spark: str | None) -> Project:
    given = _load(spec)
    for field in given:
        if field not in _FIELDS:
            near = difflib.get_close_matches(str(field), _FIELDS, n=1)
            hint = f"; {near[0]} is one" if near else f"; there are {', '.join(_FIELDS)}"
            raise ProjectError(f"{spec}: there is no field {field!r}{hint}")
    for field in ("name", "storage"):
        if not isinstance(given.get(field), str) or not given[field].strip():
            raise ProjectError(f"{spec}: {field} is missing, or no text")
    configuration = _configuration(spec, given.get("configuration") or {})
    return Project(
        folder=spec.parent,
        spec=spec,
        name=given["name"],
        storage=_storage(spec.parent, given["storage"]),
        catalog=_text(spec, given, "catalog"),
        database=_text(spec, given, "database") or _text(spec, given, "schema"),
        configuration={name: value for name, value in configuration.items() if name != WHERE_SETTING},
        libraries=_libraries(spec, given.get("libraries")),
        spark=spark or configuration.get(WHERE_SETTING) or EVERYWHERE,
    )


def _load(spec: Path) -> Mapping[str, Any]:
    try:
        given = yaml.safe_load(spec.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ProjectError(f"{spec} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(given, dict):
        raise ProjectError(f"{spec} is no list of fields such as `name: orders`")
    return given


def _text(spec: Path, given: Mapping[str, Any], field: str) -> str | None:
    value = given.get(field)
    if value is not None and not isinstance(value, str):
        raise ProjectError(f"{spec}: {field} is no text")
    return value


def _configuration(spec: Path, given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise ProjectError(f"{spec}: configuration is no list of settings such as `spark.sql.shuffle.partitions: 4`")
    found = {}
    for name, value in given.items():
        if not isinstance(name, str) or isinstance(value, dict | list) or value is None:
            raise ProjectError(f"{spec}: configuration: {name!r} has no plain value")
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _storage(folder: Path, given: str) -> str:
    """An address with a scheme, as Spark wants it; a path is one within the project."""
    return given if "://" in given or given.startswith("file:") else (folder / given).resolve().as_uri()


def _libraries(spec: Path, given: Any) -> tuple[str, ...]:
    """Patterns for the definitions: a file, or a folder and all below it."""
    form = "libraries is a list of `- glob:` with `include: transformations/**` below it"
    if not isinstance(given, list) or not given:
        raise ProjectError(f"{spec}: {form}")
    found = []
    for entry in given:
        include = (
            entry["glob"].get("include") if isinstance(entry, dict) and isinstance(entry.get("glob"), dict) else None
        )
        if not isinstance(include, str):
            raise ProjectError(f"{spec}: {form}")
        plain = include.removesuffix("/**")
        if any(mark in plain for mark in "*?["):
            raise ProjectError(f"{spec}: libraries: {include!r} is neither a file nor a folder followed by /**")
        found.append(include + "/*" if include.endswith("/**") else include)
    return tuple(found)
