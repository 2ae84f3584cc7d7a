"""The search for error codes in a response.

The search is generated from the declaration of the response, once for each route. It reads the fields that can hold an
error and nothing else. Almost every response has no error, and then counting errors costs only this search.
"""

from collections.abc import Callable
from typing import Any, get_args, get_origin, get_type_hints

from ottla.protocol.wire.declare import is_declared, schema_of

ResponseObserver = Callable[[Any, Any], None]
"""Takes the note of a request and its response; calls `note.failed` with the error codes in the response, if any."""


def compile_error_search(response: type) -> ResponseObserver | None:
    """Return the search for a response class; None if the class has no field for an error."""
    lines: list[str] = []
    _search(response, "response", 1, lines)
    if not lines:
        return None
    source = "\n".join(
        [
            "def search(note, response):",
            "    codes = None",
            *lines,
            "    if codes is not None:",
            "        note.failed(codes)",
        ]
    )
    names: dict[str, Any] = {}
    exec(compile(source, f"<errors in {response.__name__}>", "exec"), names)  # noqa: S102 (our own source)
    search: ResponseObserver = names["search"]
    return search


def _search(cls: type, name: str, depth: int, lines: list[str]) -> None:
    """Add the lines that search a struct; add no lines if it cannot hold an error."""
    pad = "    " * depth
    hints = get_type_hints(cls)
    for field in schema_of(cls).fields:
        if field.endswith("error_code"):
            lines.append(f"{pad}if {name}.{field}:")
            lines.append(f"{pad}    codes = (codes or set()) | {{{name}.{field}}}")
            continue
        struct, is_list = _struct_of(hints[field])
        if struct is None:
            continue
        inner: list[str] = []
        _search(struct, f"item{depth}", depth + 1, inner)
        if inner:
            target = f"{name}.{field}"
            lines.append(f"{pad}for item{depth} in {target if is_list else f'({target},)'} if {target} else ():")
            lines += inner


def _struct_of(hint: Any) -> tuple[type | None, bool]:
    """Return the struct type of a field, and whether the field holds a list of structs."""
    arguments = get_args(hint)
    options = [option for option in arguments if option is not type(None)] if type(None) in arguments else [hint]
    for option in options:
        if is_declared(option):
            return option, False
        if get_origin(option) is list and is_declared(get_args(option)[0]):
            return get_args(option)[0], True
    return None, False
