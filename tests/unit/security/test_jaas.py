"""Parsing of `sasl.jaas.config`, as Kafka's documentation and users write it."""

import pytest

from ottla.security.jaas import InvalidJaas, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_login_module_has_options() -> None:
    login = parse_jaas(f'{PLAIN} required username="ann" password="a;b=c \\"quoted\\" \\\\ \\101";')
    assert (login.module, login.name) == (PLAIN, "PlainLoginModule")
    assert login.options == {"username": "ann", "password": 'a;b=c "quoted" \\ A'}


def test_lines_comments_single_quotes_and_bare_words_are_read() -> None:
    text = f"""{PLAIN}  required  // who we are
        username='an"n'
        /* not
           secret */ serviceName=kafka
        user_bob-2="x" ;
    """
    assert parse_jaas(text).options == {"username": 'an"n', "serviceName": "kafka", "user_bob-2": "x"}


def test_a_module_may_have_no_options() -> None:
    assert parse_jaas(f"{PLAIN} REQUIRED;").options == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the name of a login module is missing"),
        (f"{PLAIN};", "a flag such as required after the login module is missing"),
        (f"{PLAIN} always;", "the flag 'always' must be one of required"),
        (f'{PLAIN} required username="ann"', "it must end with a semicolon"),
        (f"{PLAIN} required username;", "the option username must be followed by ="),
        (f"{PLAIN} required username=;", "the value of the option username is missing"),
        (f'{PLAIN} required password="hush-hush;', "close all quotes"),
        (f'{PLAIN} required a="b"; {PLAIN} required;', "only one login module"),
    ],
)
def test_errors_show_no_secrets(text: str, message: str) -> None:
    with pytest.raises(InvalidJaas) as raised:
        parse_jaas(text)
    assert message in str(raised.value)
    assert "hush-hush" not in str(raised.value)
