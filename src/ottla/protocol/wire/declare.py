"""Declarations of messages: one class per message, for all its versions.

    @request(key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")
    class FindCoordinatorRequest:
        key: str = since("0-3", default="")
        keys: list[str] = since("4+", factory=list)

A declared class has slots, a keyword-only constructor, equality and a repr. A declaration is cheap: nothing is
compiled until a class is first constructed, or first read or written in some version (see `codec`).

The type of a struct field that is tagged but not nullable is `... | None`, and None means that the field is absent.
Kafka's classes hold a struct of defaults instead, which is not written either.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, dataclass_transform

from ottla.protocol.wire.types import Chunk

T = TypeVar("T")
Reader: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]
Writer: TypeAlias = Callable[[Any, Callable[[Chunk], None]], None]
MISSING: Any = object()
LAST_VERSION = 32_767


class Versions:
    """A closed range of versions, written "3", "0-6" or "3+". The empty text is the empty range."""

    __slots__ = ("first", "last")

    def __init__(self, text: str) -> None:
        first, dash, last = text.partition("-")
        if not text:
            self.first, self.last = 0, -1
        elif first.endswith("+"):
            self.first, self.last = int(first[:-1]), LAST_VERSION
        else:
            self.first = int(first)
            self.last = int(last) if dash else self.first

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __repr__(self) -> str:
        return f"{self.first}-{self.last}" if self.last < LAST_VERSION else f"{self.first}+"


class Field:
    """The declaration of one field by `since`. Its name and type are in the class's annotation."""

    __slots__ = ("compact", "default", "factory", "nullable", "shared", "tag", "versions")

    def __init__(
        self,
        versions: str,
        default: Any,
        factory: Callable[[], Any] | None,
        nullable: str | None,
        tag: int | None,
        compact: bool,
        shared: bool,
    ) -> None:
        self.versions = versions
        self.default = default
        self.factory = factory
        self.nullable = nullable
        self.tag = tag
        self.compact = compact
        self.shared = shared

    def make_default(self) -> Any:
        return self.default if self.factory is None else self.factory()


def since(
    versions: str,
    *,
    default: Any = MISSING,
    factory: Callable[[], Any] | None = None,
    nullable: str | None = None,
    tag: int | None = None,
    compact: bool = True,
    shared: bool = False,
) -> Any:
    """Declare a field that exists in these versions of its message. In other versions it has its default.

    `nullable` gives the versions in which a `... | None` field may be null on the wire (default: all of them). A field
    with a `tag` is a tagged field, which is written only if it differs from its default. `compact=False` keeps the old
    length prefix in flexible versions; only the request header's client id needs it. A `shared` list is often the same
    object in adjacent structs, so its bytes are encoded once and reused.
    """
    return Field(versions, default, factory, nullable, tag, compact, shared)


class Schema:
    """The declaration of a class, and its readers and writers by version, created on first use."""

    __slots__ = ("cls", "fields", "flexible", "key", "name", "readers", "versions", "writers")

    def __init__(self, cls: type, fields: dict[str, Field], key: int, versions: str, flexible: str) -> None:
        self.cls = cls
        self.name = cls.__name__
        self.fields = fields
        self.key = key
        self.versions = Versions(versions)
        self.flexible = Versions(flexible)
        self.readers: dict[int, Reader] = {}
        self.writers: dict[int, Writer] = {}


def schema_of(cls: type) -> Schema:
    schema: Schema = cls.__schema__  # type: ignore[attr-defined]
    return schema


def is_declared(cls: Any) -> bool:
    return isinstance(getattr(cls, "__schema__", None), Schema)


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def struct(cls: type[T]) -> type[T]:
    """Declare a struct inside messages. It has the versions of the message that contains it."""
    return _declare(cls, key=-1, versions="", flexible="")


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def request(*, key: int, versions: str, flexible: str = "") -> Callable[[type[T]], type[T]]:
    """Declare the body of a request of the API `key`."""
    return lambda cls: _declare(cls, key=key, versions=versions, flexible=flexible)


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def response(*, key: int, versions: str, flexible: str = "") -> Callable[[type[T]], type[T]]:
    """Declare the body of a response of the API `key`."""
    return lambda cls: _declare(cls, key=key, versions=versions, flexible=flexible)


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def stored(*, key: int = -1, versions: str, flexible: str = "") -> Callable[[type[T]], type[T]]:
    """Declare a header, or a record in a log or a file. `key` is the record's type if it has one."""
    return lambda cls: _declare(cls, key=key, versions=versions, flexible=flexible)


def _declare(cls: type[T], *, key: int, versions: str, flexible: str) -> type[T]:
    # A class can only get slots when it is created, so create the declared class again.
    body = dict(vars(cls))
    fields = {name: body.pop(name) for name in cls.__annotations__}
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    body.update(__slots__=(*fields, "unknown_tags"), __init__=_first_init, __eq__=_equal, __hash__=None, __repr__=_show)
    created: Any = type(cls.__name__, cls.__bases__, body)
    created.__schema__ = Schema(created, fields, key, versions, flexible)
    declared: type[T] = created
    return declared


def _first_init(self: Any, **values: Any) -> None:
    """Compile the constructor on its first call, and put it in place of this function."""
    cls: Any = type(self)
    cls.__init__ = _compile_init(schema_of(cls))
    cls.__init__(self, **values)


def _compile_init(schema: Schema) -> Callable[..., None]:
    names: dict[str, Any] = {"MISSING": MISSING}
    parameters = []
    lines = []
    for name, field in schema.fields.items():
        if field.factory is None:
            names[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
            lines.append(f"    self.{name} = {name}")
        else:
            names[f"make_{name}"] = field.factory
            parameters.append(f"{name}=MISSING")
            lines.append(f"    self.{name} = make_{name}() if {name} is MISSING else {name}")
    star = "*, " if parameters else ""
    source = "\n".join([f"def __init__(self, {star}{', '.join(parameters)}):", *lines, "    self.unknown_tags = None"])
    exec(compile(source, f"<{schema.name} constructor>", "exec"), names)  # noqa: S102 (our own source)
    constructor: Callable[..., None] = names["__init__"]
    return constructor


def _equal(self: Any, other: Any) -> bool:
    if type(self) is not type(other):
        return False
    return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _show(self: Any) -> str:
    """Show only the fields that differ from their defaults, to keep log lines readable."""
    shown = []
    for name, field in schema_of(type(self)).fields.items():
        value = getattr(self, name)
        if value != field.make_default():
            shown.append(f"{name}={_shorten(value)}")
    if self.unknown_tags:
        shown.append(f"unknown_tags={sorted(self.unknown_tags)}")
    return f"{type(self).__name__}({', '.join(shown)})"


def _shorten(value: Any) -> str:
    if isinstance(value, memoryview | bytes | bytearray) and len(value) > 32:
        return f"<{len(value)} bytes>"
    return repr(value)
