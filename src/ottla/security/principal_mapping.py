"""Who a certificate is of: its subject as Java writes it (RFC 2253), and what `ssl.principal.mapping.rules` make of it.

A rule is DEFAULT, or `RULE:pattern/replacement/` with L or U behind it for lower or upper case; the first whose pattern
is the whole subject counts. Patterns are Java's, replacements name groups by `$1`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

ANONYMOUS: Final = "User:ANONYMOUS"


_KEYWORDS: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""OpenSSL's names of what RFC 2253 has a short one for."""
_OIDS: Final = {
    "emailAddress": ("1.2.840.113549.1.9.1", 0x16),
    "serialNumber": ("2.5.4.5", 0x13),
    "title": ("2.5.4.12", 0x0C),
    "givenName": ("2.5.4.42", 0x0C),
    "surname": ("2.5.4.4", 0x0C),
    "initials": ("2.5.4.43", 0x0C),
    "dnQualifier": ("2.5.4.46", 0x13),
    "businessCategory": ("2.5.4.15", 0x0C),
    "postalCode": ("2.5.4.17", 0x0C),
}
"""The others are written by number, as the bytes of a string of the kind that they usually are."""
_special = re.compile(r'([,+"\\<>;=])')
_rule = re.compile(r"\s*RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)\s*|\s*DEFAULT\s*", re.DOTALL).match
_group = re.compile(r"\\(.)|\$(\d)", re.DOTALL)
_LONGEST_SHORT_DER: Final = 127

Subject = Sequence[Sequence[tuple[str, str]]]
"""A subject as `ssl` tells it: from the country down to the name."""


class InvalidMappingRules(Exception):
    """Mapping rules that cannot be read: where, and why."""


class MappingRule(NamedTuple):
    """One rule; without a pattern it leaves a subject as it is."""

    pattern: "re.Pattern[str] | None"
    replacement: str = ""
    change: Callable[[str], str] = str


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """The rules of a setting; raises InvalidRules."""
    rules: list[MappingRule] = []
    at = 0
    while at < len(text.rstrip()):
        found = _rule(text, at)
        if found is None or (found.end() < len(text) and text[found.end()] != ","):
            raise InvalidMappingRules(f"character {at + 1}: expected DEFAULT or RULE:pattern/replacement/[LU]")
        rules.append(_read(found))
        at = found.end() + 1
    return tuple(rules) or (MappingRule(None),)


def principal_name(subject: Subject, rules: Sequence[MappingRule]) -> str | None:
    """What a client with this certificate is called; None if no rule is about it."""
    name = distinguished_name(subject)
    for rule in rules:
        if rule.pattern is None:
            return name
        if found := rule.pattern.fullmatch(name):
            return rule.change(_group.sub(lambda part: _part(found, part), rule.replacement))
    return None


def distinguished_name(subject: Subject) -> str:
    """The subject in one line, as Java's X500Principal has it: from the name up to the country."""
    return ",".join("+".join(_attribute(*pair) for pair in part) for part in reversed(subject))


def _read(found: "re.Match[str]") -> MappingRule:
    if found[1] is None:
        return MappingRule(None)
    try:
        pattern = re.compile(re.sub(r"\\/", "/", found[1]))
    except re.error as error:
        raise InvalidMappingRules(f"the pattern {found[1]!r} cannot be read: {error}") from None
    changes: dict[str, Callable[[str], str]] = {"L": str.lower, "U": str.upper, "": str}
    return MappingRule(pattern, found[2], changes[found[3]])


def _part(found: "re.Match[str]", part: "re.Match[str]") -> str:
    if part[1] is not None:
        return part[1]
    number = int(part[2])
    return found[number] or "" if number <= found.re.groups else part[0]


def _attribute(name: str, value: Any) -> str:
    text = str(value)
    if name in _KEYWORDS:
        return f"{_KEYWORDS[name]}={_escaped(text)}"
    if name in _OIDS:
        oid, kind = _OIDS[name]
        data = text.encode()
        if len(data) <= _LONGEST_SHORT_DER:
            return f"{oid}=#{bytes((kind, len(data))).hex()}{data.hex()}"
        return f"{oid}={_escaped(text)}"
    return f"{name}={_escaped(text)}"


def _escaped(text: str) -> str:
    text = _special.sub(r"\\\1", text)
    if text.startswith((" ", "#")):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1:
        text = text[:-1] + "\\ "
    return text
