"""Which error codes a response holds, wherever in it they are.

The search is generated from the response's declaration, once a route: it looks at the fields that can hold an error
and at nothing else. Almost every response has none, and then this is all that counting errors costs.
"""

from collections.abc import Callable
from typing import Any, get_args, get_origin, get_type_hints

from ottla.protocol.wire.declare import is_declared, schema_of

ResponseObserver = Callable[[Any, Any], None]
"""Takes the note of a request and its response; tells the note (`failed`) of the error codes in it, if any."""


def compile_error_search(response: type) -> ResponseObserver | None:
    """The search for a response's class; None if it has no place for an error."""
    lines: list[str] = []
    _search(response, "response", 1, lines)
    if not lines:
        return None
    source = "\n".join(
        [
            "def look(note, response):",
            "    found = None",
            *lines,
            "    if found is not None:",
            "        note.failed(found)",
        ]
    )
    names: dict[str, Any] = {}
    exec(compile(source, f"<errors in {response.__name__}>", "exec"), names)  # noqa: S102 (our own source)
    made: ResponseObserver = names["look"]
    return made


def _search(cls: type, name: str, depth: int, lines: list[str]) -> None:
    """Add the lines that look into a struct; none if no error can be in it."""
    pad = "    " * depth
    hints = get_type_hints(cls)
    for field in schema_of(cls).fields:
        if field.endswith("error_code"):
            lines.append(f"{pad}if {name}.{field}:")
            lines.append(f"{pad}    found = (found or set()) | {{{name}.{field}}}")
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
    """The struct that a field holds, and whether it holds a list of them."""
    options = [each for each in get_args(hint) if each is not type(None)] if type(None) in get_args(hint) else [hint]
    for option in options:
        if is_declared(option):
            return option, False
        if get_origin(option) is list and is_declared(get_args(option)[0]):
            return get_args(option)[0], True
    return None, False
