"""Distinguished names and mapping rules, compared with Kafka's documentation and Java's names."""

import pytest

from ottla.security.principal_mapping import InvalidMappingRules, distinguished_name, parse_rules, principal_name

SUBJECT = (
    (("countryName", "US"),),
    (("stateOrProvinceName", "NY"),),
    (("organizationName", "Example, Inc."),),
    (("organizationalUnitName", "Data"), ("organizationalUnitName", "Ops")),
    (("commonName", "Ann"),),
)


def test_a_subject_is_written_from_the_common_name_up() -> None:
    assert distinguished_name(SUBJECT) == "CN=Ann,OU=Data+OU=Ops,O=Example\\, Inc.,ST=NY,C=US"


def test_attributes_without_a_short_name_are_written_as_oid() -> None:
    assert distinguished_name(((("emailAddress", "a@b"),),)) == "1.2.840.113549.1.9.1=#1603614062"


@pytest.mark.parametrize(
    ("value", "written"), [(" a", "\\ a"), ("a ", "a\\ "), ("#a", "\\#a"), ('a"b', 'a\\"b'), ("a=b", "a\\=b")]
)
def test_special_characters_are_escaped(value: str, written: str) -> None:
    assert distinguished_name(((("commonName", value),),)) == f"CN={written}"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=Ann,OU=Data+OU=Ops,O=Example\\, Inc.,ST=NY,C=US"),
        ("", "CN=Ann,OU=Data+OU=Ops,O=Example\\, Inc.,ST=NY,C=US"),
        ("RULE:^CN=(.*?),.*$/$1/", "Ann"),
        ("RULE:^CN=(.*?),.*$/$1/L", "ann"),
        ("RULE:^CN=(.*?),.*$/user-$1@$0/U".replace("@$0", ""), "USER-ANN"),
        ("RULE:^CN=Bob.*$/bob/, RULE:^CN=(.*?),OU=(.*?)\\+.*$/$1@$2/L, DEFAULT", "ann@data"),
        ("RULE:^CN=Bob.*$/bob/, DEFAULT", "CN=Ann,OU=Data+OU=Ops,O=Example\\, Inc.,ST=NY,C=US"),
        ("RULE:^CN=Bob.*$/bob/", None),
        ("RULE:^CN=(.*?),.*$/a\\/$1/", "a/Ann"),
    ],
)
def test_the_first_matching_rule_applies(rules: str, name: str | None) -> None:
    assert principal_name(SUBJECT, parse_rules(rules)) == name


@pytest.mark.parametrize(
    "rules", ["x", "RULE:a", "RULE:a/b", "RULE:(/b/", "DEFAULT DEFAULT", "RULE:a/b/X", "DEFAULT,,"]
)
def test_invalid_rules_are_reported(rules: str) -> None:
    with pytest.raises(InvalidMappingRules):
        parse_rules(rules)
