"""`ottla transaction`, as people and programs see it."""

import json

from tests.support.commands import run_command, run_failing_command, run_ottla
from tests.unit.coordinators.transactions.leaving import leave_open


def test_an_open_transaction_is_listed_described_and_aborted(server: str, topic: str) -> None:
    run_command("topic", "create", topic, "-p", "1", server=server)
    id_ = f"{topic}-writer"
    leave_open(server, topic, id_)
    listed = run_command("transaction", "list", "--state", "Ongoing", server=server).splitlines()
    assert listed[0].split() == ["TRANSACTIONAL", "ID", "COORDINATOR", "PRODUCER", "STATE"]
    (row,) = [line.split() for line in listed if id_ in line]
    assert row[1] == "1"
    assert row[3] == "Ongoing"
    first, titles, where = run_command("transaction", "describe", id_, server=server).splitlines()
    assert first.startswith(f"Transactional id {id_}: Ongoing, producer {row[2]} of epoch 0, coordinator 1, since ")
    assert titles.split() == ["TOPIC", "PARTITION"]
    assert where.split() == [topic, "0"]
    said = run_command("transaction", "abort", id_, server=server)
    assert said == f"Aborted the open transaction of {id_}, and fenced its producer.\n"
    found = json.loads(run_command("transaction", "describe", id_, "--json", server=server))
    assert found["state"] == "Empty"
    assert found["partitions"] == []
    assert id_ not in run_command("transaction", "list", "--state", "Ongoing", server=server)
    assert id_ in run_command("transaction", "list", "--pattern", f"{topic}-.*", server=server)
    assert id_ not in run_command("transaction", "list", "--pattern", topic, server=server)
    assert id_ not in run_command("transaction", "list", "--longer-than", "0", "--state", "Ongoing", server=server)


def test_a_hanging_transaction_is_aborted_on_its_partition(server: str, topic: str) -> None:
    run_command("topic", "create", topic, "-p", "1", server=server)
    leave_open(server, topic, f"{topic}-writer")
    where = ("--topic", topic, "--partition", "0", "--start-offset")
    assert "no open transaction starts at offset 5" in run_failing_command(
        "transaction", "abort", *where, "5", server=server
    )
    said = run_command("transaction", "abort", *where, "0", server=server)
    assert said.startswith("Aborted the transaction of producer ")
    assert "no open transaction starts" in run_failing_command("transaction", "abort", *where, "0", server=server)


def test_unknown_ids_and_invalid_usage_are_rejected(server: str) -> None:
    for action in ("describe", "abort"):
        said = run_failing_command("transaction", action, "nobody", server=server)
        assert "TRANSACTIONAL_ID_NOT_FOUND" in said
    assert run_ottla("transaction", "abort", server=server).returncode == 2
    assert run_ottla("transaction", "abort", "x", "--topic", "t", server=server).returncode == 2
    assert "INVALID_REGULAR_EXPRESSION" in run_failing_command("transaction", "list", "--pattern", "(", server=server)
