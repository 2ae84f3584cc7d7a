"""Maps the subject of a certificate to a principal by `ssl.principal.mapping.rules`.

The subject is written as Java writes it (RFC 2253). A rule is DEFAULT, or `RULE:pattern/replacement/` with an optional
L or U for lower or upper case. The first rule whose pattern matches the whole subject applies. Patterns are Java's, and
replacements refer to groups by `$1`.
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
"""The short names of RFC 2253, by OpenSSL's names."""
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
"""Other attributes, which Java writes as an OID with the DER of a string of their usual type."""
_special = re.compile(r'([,+"\\<>;=])')
_rule = re.compile(r"\s*RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)\s*|\s*DEFAULT\s*", re.DOTALL).match
_group = re.compile(r"\\(.)|\$(\d)", re.DOTALL)
_LONGEST_SHORT_DER: Final = 127

Subject = Sequence[Sequence[tuple[str, str]]]
"""A subject as `ssl` returns it, from the country to the common name."""


class InvalidMappingRules(Exception):
    """Mapping rules that cannot be parsed."""


class MappingRule(NamedTuple):
    """A mapping rule. Without a pattern it does not change the subject."""

    pattern: "re.Pattern[str] | None"
    replacement: str = ""
    change: Callable[[str], str] = str


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Parse the rules of a setting. Raise InvalidMappingRules."""
    rules: list[MappingRule] = []
    position = 0
    while position < len(text.rstrip()):
        match = _rule(text, position)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            raise InvalidMappingRules(f"character {position + 1}: expected DEFAULT or RULE:pattern/replacement/[LU]")
        rules.append(_parse_rule(match))
        position = match.end() + 1
    return tuple(rules) or (MappingRule(None),)


def principal_name(subject: Subject, rules: Sequence[MappingRule]) -> str | None:
    """Return the principal name for a subject, or None if no rule matches."""
    name = distinguished_name(subject)
    for rule in rules:
        if rule.pattern is None:
            return name
        if match := rule.pattern.fullmatch(name):
            return rule.change(_group.sub(lambda reference: _expand(match, reference), rule.replacement))
    return None


def distinguished_name(subject: Subject) -> str:
    """Return the subject as Java's X500Principal formats it, from the common name to the country."""
    return ",".join("+".join(_attribute(*pair) for pair in part) for part in reversed(subject))


def _parse_rule(match: "re.Match[str]") -> MappingRule:
    if match[1] is None:
        return MappingRule(None)
    try:
        pattern = re.compile(re.sub(r"\\/", "/", match[1]))
    except re.error as error:
        raise InvalidMappingRules(f"the pattern {match[1]!r} is not a regular expression: {error}") from None
    changes: dict[str, Callable[[str], str]] = {"L": str.lower, "U": str.upper, "": str}
    return MappingRule(pattern, match[2], changes[match[3]])


def _expand(match: "re.Match[str]", reference: "re.Match[str]") -> str:
    if reference[1] is not None:
        return reference[1]
    number = int(reference[2])
    return match[number] or "" if number <= match.re.groups else reference[0]


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
