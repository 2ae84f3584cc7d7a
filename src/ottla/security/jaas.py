"""Parses `sasl.jaas.config`: the name of a Java login module, a flag and options.

`org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="secret";`. A value is a bare
word, or text in double or single quotes with Java's escapes. Java comments are skipped.
"""

import re
from typing import Final, NamedTuple

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_token = re.compile(
    r"""
    (?P<blank>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<word>[\w\-.$+/@:]+)
  | "(?P<double>(?:[^"\\\n]|\\.)*)"
  | '(?P<single>(?:[^'\\\n]|\\.)*)'
  | (?P<sign>[=;])
    """,
    re.VERBOSE | re.DOTALL,
).match
_escape = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


class InvalidJaas(Exception):
    """The text is not a JAAS configuration. The message shows no values, which may be passwords."""


class Login(NamedTuple):
    """A login module: its class and its options."""

    module: str
    options: dict[str, str]

    @property
    def name(self) -> str:
        """The name of the class without its package."""
        return self.module.rpartition(".")[2]


def parse_jaas(text: str) -> Login:
    """Parse a text with one login module. Raise InvalidJaas."""
    tokens = _tokens(text)
    module = _take(tokens, "word", "the name of a login module")
    flag = _take(tokens, "word", "a flag such as required after the login module")
    if flag.lower() not in _FLAGS:
        raise InvalidJaas(f"the flag {flag!r} must be one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    while tokens and tokens[0] != ("sign", ";"):
        name = _take(tokens, "word", "the name of an option")
        if not tokens or tokens.pop(0) != ("sign", "="):
            raise InvalidJaas(f"the option {name} must be followed by =")
        options[name] = _take(tokens, "value", f"the value of the option {name}")
    if not tokens:
        raise InvalidJaas("it must end with a semicolon")
    if len(tokens) > 1:
        raise InvalidJaas("it must have only one login module and nothing after the semicolon")
    return Login(module, options)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _token(text, position)
        if match is None:
            raise InvalidJaas(
                f"invalid character at position {position + 1}: close all quotes, and quote special characters"
            )
        kind = match.lastgroup
        assert kind is not None
        if kind != "blank":
            quoted = kind in ("double", "single")
            tokens.append(("value", _escape.sub(_plain, match[kind])) if quoted else (kind, match[kind]))
        position = match.end()
    return tokens


def _plain(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)


def _take(tokens: list[tuple[str, str]], kind: str, what: str) -> str:
    if not tokens or tokens[0][0] not in ({"word", "value"} if kind == "value" else {kind}):
        raise InvalidJaas(f"{what} is missing")
    return tokens.pop(0)[1]
