"""JSON becomes columns: both ways of reading agree for any value, and no value is lost."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.spark.tables import evolution, json_rows
from ottla.spark.tables.evolution import MAX_DEPTH, extend_schema, is_allowed
from ottla.spark.tables.json_rows import ParsedValues, read_by_arrow, read_one_by_one, read_values
from ottla.spark.tables.record_columns import record_fields, value_fields

EMPTY = pa.schema(record_fields("string"))
NONE: frozenset[str] = frozenset()
NAMES = st.sampled_from(["a", "b", "c", "A", "x.y", "", "_key", "nested", "l"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["2026-11-15", "2026-11-15T10:00:00Z", 0, 1, -1, 1.0, 2**63, 2**63 - 1, "\ud800"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4).map(lambda value: json.dumps(value).encode())
BYTES = st.one_of(
    OBJECTS, OBJECTS, OBJECTS, st.binary(max_size=8), VALUES.map(lambda value: json.dumps(value).encode())
)


def column(*values: Any) -> pa.Array:
    return pa.array(
        [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values], pa.binary()
    )


def settled(values: pa.Array, schema: pa.Schema = EMPTY, fixed: frozenset[str] = NONE) -> ParsedValues:
    """Read values as a table does: until it has all columns."""
    for _ in range(MAX_DEPTH):
        parsed = read_values(values, schema, fixed)
        if parsed.wanted == schema:
            return parsed
        schema = parsed.wanted
    raise AssertionError("columns do not settle")


@given(st.lists(BYTES, min_size=1, max_size=6), st.lists(BYTES, max_size=3))
@settings(max_examples=150, deadline=None)
def test_arrow_and_the_rules_agree(values: list[bytes], earlier: list[bytes]) -> None:
    schema = settled(pa.array(earlier, pa.binary())).wanted if earlier else EMPTY
    for _ in range(3):
        rules = read_one_by_one(pa.array(values, pa.binary()), schema, NONE)
        fast = read_by_arrow(pa.array(values, pa.binary()), schema, NONE)
        if fast is not None:
            assert set(fast.wanted) == set(rules.wanted)
            assert fast.errors == rules.errors
            if fast.rows is not None and rules.rows is not None:
                fast.rows.validate(full=True)
                assert fast.rows.to_pylist() == rules.rows.to_pylist()
                assert fast.rescued.to_pylist() == rules.rescued.to_pylist()
        schema = rules.wanted


@given(st.lists(BYTES, min_size=1, max_size=6))
@settings(max_examples=80, deadline=None)
def test_nothing_is_lost(values: list[bytes]) -> None:
    parsed = settled(pa.array(values, pa.binary()))
    assert parsed.rows is not None
    for number, (value, row, rescued) in enumerate(
        zip(values, parsed.rows.to_pylist(), parsed.rescued.to_pylist(), strict=True)
    ):
        if number in parsed.errors:
            assert row is None
            continue
        kept = json.loads(rescued) if rescued else {}
        for name, content in json.loads(value).items():
            if name in kept or is_untyped(content):
                continue
            within = {path: rest for path, rest in kept.items() if path.startswith(f"{name}.")}
            assert within or same(row[name], content), (name, content, row, rescued)


def is_untyped(value: Any) -> bool:
    if isinstance(value, list | dict):
        return all(map(is_untyped, value if isinstance(value, list) else value.values()))
    return value is None


def same(stored: Any, given: Any) -> bool:
    """Whether values are equal; a stored struct may have more members, and a stored number may be wider."""
    if isinstance(given, dict) and isinstance(stored, dict):
        return all(
            is_untyped(given.get(name)) if member is None else same(member, given[name])
            for name, member in stored.items()
        )
    if isinstance(given, list) and isinstance(stored, list):
        return len(given) == len(stored) and all(map(same, stored, given))
    if isinstance(given, int) and isinstance(stored, float):
        return float(given) == stored
    return bool(stored == given and type(stored) is type(given)) or (stored is None and is_untyped(given))


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": NaN}', "NaN is not a number in JSON"),
        (b'{"a": 1}{"a": 2}', "not JSON"),
        (b'1}{"v":2', "not JSON"),
        (b"null", "not a JSON object, but null"),
        (b"[1]", "not a JSON object, but an array"),
        (b"7", "not a JSON object, but a number"),
        (b'"x"', "not a JSON object, but a string"),
        (b"true", "not a JSON object, but a boolean"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_values_that_cannot_be_rows_have_errors(value: bytes, error: str) -> None:
    parsed = settled(column({"a": 1}, value, {"a": 2}))
    assert parsed.rows is not None
    assert error in parsed.errors[1]
    assert [row and row["a"] for row in parsed.rows.to_pylist()] == [1, None, 2]


def test_a_value_with_two_objects_does_not_replace_its_neighbour() -> None:
    parsed = settled(column({"a": 1}, b'{"a": 1}}\n{"v":{"a":2}', b"", {"a": 3}))
    assert sorted(parsed.errors) == [1, 2]


def test_a_few_irregular_values_among_many() -> None:
    values = [{"n": number, "t": f"text {number}"} for number in range(3000)]
    irregular: dict[int, Any] = {5: b"bad", 1500: {"n": "text"}, 1501: {"new": 1}, 2999: b"[]"}
    given = column(*(irregular.get(number, value) for number, value in enumerate(values)))
    parsed, rules = settled(given), settled_by_rules(given)
    assert sorted(parsed.errors.items()) == sorted(rules.errors.items())
    assert parsed.rows is not None
    assert rules.rows is not None
    assert parsed.rows.to_pylist() == rules.rows.to_pylist()
    assert parsed.rescued.equals(rules.rescued)
    assert parsed.rescued.null_count == 2999


def settled_by_rules(values: pa.Array) -> ParsedValues:
    wanted = read_one_by_one(values, EMPTY, NONE).wanted
    return read_one_by_one(values, wanted, NONE)


def test_declared_types_do_not_change() -> None:
    schema = pa.schema([*EMPTY, ("at", pa.timestamp("us", "UTC")), ("on", pa.date32()), ("n", pa.int64())])
    values = column({"at": "2026-11-15T10:00:00+01:00", "on": "2026-11-15", "n": 1}, {"at": 1000, "on": 5, "n": 1.5})
    parsed = read_values(values, schema, frozenset(["at", "on", "n"]))
    assert parsed.wanted == schema
    assert parsed.rows is not None
    first, second = parsed.rows.to_pylist()
    assert (first["at"].isoformat(), str(first["on"]), first["n"]) == ("2026-11-15T09:00:00+00:00", "2026-11-15", 1)
    assert (second["at"].isoformat(), second["on"], second["n"]) == ("1970-01-01T00:00:01+00:00", None, None)
    assert json.loads(parsed.rescued.to_pylist()[1]) == {"on": 5, "n": 1.5}


def test_the_number_of_columns_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolution, "MAX_COLUMNS", 60)
    values = column(*({f"user-{number}": number} for number in range(100)))
    parsed = settled(values)
    assert sum(evolution.count_leaves(field.type) for field in parsed.wanted) == 60
    assert parsed.rescued.null_count == 60 - len(EMPTY)


def test_depth_is_limited() -> None:
    deep: Any = 1
    for _ in range(50):
        deep = {"d": deep}
    parsed = settled(column({"a": deep, "b": 1}))
    assert [field.name for field in value_fields(parsed.wanted)] == ["b"]
    assert json.loads(parsed.rescued.to_pylist()[0]) == {"a": deep}


def test_names_that_differ_only_by_case_are_one_column() -> None:
    parsed = settled(column({"Id": 1}, {"id": 2}, {"ID": 3, "Id": 4}))
    assert [field.name for field in value_fields(parsed.wanted)] == ["Id"]
    assert parsed.rows is not None
    assert [row["Id"] for row in parsed.rows.to_pylist()] == [1, None, 4]


def test_columns_widen_and_never_narrow() -> None:
    whole = extend_schema(EMPTY, [pa.field("n", pa.int64())])
    wide = extend_schema(whole, [pa.field("n", pa.float64())])
    assert wide.field("n").type == pa.float64()
    assert extend_schema(wide, [pa.field("n", pa.int64())]) == wide
    assert extend_schema(wide, [pa.field("n", pa.string())]) == wide
    assert extend_schema(wide, [pa.field("_offset", pa.string()), pa.field("_Key", pa.int64())]) == wide
    assert not is_allowed("a b")
    assert is_allowed("ähnlich-wie_1")


def test_regressions_found_by_hypothesis() -> None:
    """A number in a struct's column, and a list that has only nulls."""
    parsed = settled(column({"a": {"b": False}}), settled(column({"a": {"b": True}})).wanted)
    assert json.loads(settled(column({"a": 0}), parsed.wanted).rescued.to_pylist()[0]) == {"a": 0}
    rows = settled(column({"a": [None, None]}, {"a": [1, None]})).rows
    assert rows is not None
    assert rows.to_pylist()[0] == {"a": [None, None]}


def test_new_columns_read_only_few_values_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def counted(values: pa.Array, schema: pa.Schema, fixed: frozenset[str]) -> ParsedValues:
        sizes.append(len(values))
        return read_one_by_one(values, schema, fixed)

    monkeypatch.setattr(json_rows, "read_one_by_one", counted)
    # Arrow reads large integers and NaN as floats, so a new float column is decided one by one.
    parsed = read_values(column(*({"price": n / 7, "n": n} for n in range(5000))), EMPTY, NONE)
    assert {field.name: field.type for field in value_fields(parsed.wanted)} == {"price": pa.float64(), "n": pa.int64()}
    assert parsed.rows is None
    assert sum(sizes) <= 128


def test_halves_with_different_fields_need_the_columns_of_both() -> None:
    values = column(*({"n": n} for n in range(200)), *({"n": n / 3, "more": [n]} for n in range(200)), b"bad")
    parsed = read_values(values, EMPTY, NONE)
    wanted = {field.name: field.type for field in value_fields(parsed.wanted)}
    assert wanted == {"n": pa.float64(), "more": pa.list_(pa.field("element", pa.int64()))}
    assert list(parsed.errors) == [400]
    again = read_values(values, parsed.wanted, NONE)
    assert again.wanted == parsed.wanted
    assert again.rows is not None
    assert again.rows[199].as_py() == {"n": 199.0, "more": None}
    assert again.rows[399].as_py() == {"n": 199 / 3, "more": [199]}
