"""The text of `sasl.jaas.config`: a login module of Java by its name, a flag, and options.

`org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="secret";`. Values stand in
double or single quotes, with Java's escapes, or are bare words; comments of Java are passed over.
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
    """A text that is no such configuration. Says where, and shows no value: it may be a password."""


class Login(NamedTuple):
    """One entry: the module's class, and its options."""

    module: str
    options: dict[str, str]

    @property
    def name(self) -> str:
        """The module without its package."""
        return self.module.rpartition(".")[2]


def parse_jaas(text: str) -> Login:
    """The one entry that a text holds; raises InvalidJaas."""
    tokens = _tokens(text)
    module = _take(tokens, "word", "the name of a login module")
    flag = _take(tokens, "word", "required, or another flag, behind the login module")
    if flag.lower() not in _FLAGS:
        raise InvalidJaas(f"{flag!r} stands where one of {', '.join(_FLAGS)} is expected")
    options: dict[str, str] = {}
    while tokens and tokens[0] != ("sign", ";"):
        name = _take(tokens, "word", "the name of an option")
        if not tokens or tokens.pop(0) != ("sign", "="):
            raise InvalidJaas(f"there is no = behind the option {name}")
        options[name] = _take(tokens, "value", f"a value of the option {name}")
    if not tokens:
        raise InvalidJaas("it does not end with a semicolon")
    if len(tokens) > 1:
        raise InvalidJaas("more than one login module, or something behind its semicolon")
    return Login(module, options)


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _token(text, at)
        if match is None:
            raise InvalidJaas(f"character {at + 1} cannot be read: a quote that is not closed, or a stray sign")
        kind = match.lastgroup
        assert kind is not None
        if kind != "blank":
            quoted = kind in ("double", "single")
            found.append(("value", _escape.sub(_plain, match[kind])) if quoted else (kind, match[kind]))
        at = match.end()
    return found


def _plain(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)


def _take(tokens: list[tuple[str, str]], kind: str, what: str) -> str:
    if not tokens or tokens[0][0] not in ({"word", "value"} if kind == "value" else {kind}):
        raise InvalidJaas(f"{what} is missing")
    return tokens.pop(0)[1]
