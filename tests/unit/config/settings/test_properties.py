"""Properties files, as Java writes and reads them (tests/conformance/interop compares with Java itself)."""

import pytest

from ottla.config.settings.properties import InvalidProperties, Property, parse_properties, show_properties

SERVER = rb"""# a comment
! another
node.id=1

  log.dirs : /a,\
             /b
listeners   PLAINTEXT://:9092
path = C:\\data\tx
escaped\ key\=x = \u00e9\n
novalue
node.id=2
latin = """


def test_every_form_of_an_entry_is_read_with_its_line() -> None:
    assert parse_properties(SERVER + b"\xe9") == {
        "log.dirs": Property("/a,/b", 5),
        "listeners": Property("PLAINTEXT://:9092", 7),
        "path": Property("C:\\data\tx", 8),
        "escaped key=x": Property("é\n", 9),
        "novalue": Property("", 10),
        "node.id": Property("2", 11),
        "latin": Property("é", 12),
    }


@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n"])
def test_every_kind_of_line_end_is_recognized(line_end: str) -> None:
    text = line_end.join(["a=1\\", "  2", "", "b=\\\\", "c"])
    assert parse_properties(text) == {"a": Property("12", 1), "b": Property("\\", 4), "c": Property("", 5)}


def test_an_invalid_escape_names_its_line() -> None:
    with pytest.raises(InvalidProperties, match=r"line 2: \\u12x4 is not an escape"):
        parse_properties("a=1\nb=\\u12x45")


def test_written_properties_are_parsed_back() -> None:
    values = {"a b:=#!\\": "  x \t\n\r\f\\ é😀:=#!", "": "", "\x00": "\x7f"}
    text = show_properties(values, comment="by Ottla")
    assert text.isascii()
    assert text.startswith("#by Ottla\n")
    assert {key: parsed.value for key, parsed in parse_properties(text).items()} == values
