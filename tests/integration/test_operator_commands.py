"""The operator's commands: what they do, what they print, and how they end."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest

from deedbox import Deedbox, user
from deedbox.cli.batches import SIZE, in_batches
from tests.support.commands import Commands
from tests.support.fleet import decide, ids
from tests.support.hands import Hands
from tests.support.shop import Shop, charge, lookup, mail, refund, says, ship, wire

RESULT = '{"id": "ch_1"}'


@pytest.fixture
def deedbox(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shop: Shop) -> Commands:
    """The command line on the shop's ledger."""
    return Commands(monkeypatch, capsys, shop.url, shop.schema)


@pytest.fixture
def hands(shop: Shop) -> Any:
    """A worker in plain SQL."""
    with shop.hands() as hands:
        yield hands


def one(bank: Deedbox, conn: psycopg.Connection, tool: Any = charge) -> tuple[str, UUID]:
    """A committed call of the tool: its key and id."""
    run = decide(bank, tool(order="o") if tool is lookup else tool(customer="c", cents=1))
    return f"{run.id}:1:0", ids(conn, run)[0]


def doubtful(bank: Deedbox, conn: psycopg.Connection, hands: Hands, reason: str = "the answer was lost") -> str:
    """The key of a call that is in doubt."""
    key, id_ = one(bank, conn, wire)
    hands.claim([id_])
    hands.finish(id_, 1, "unknown", error={"reason": reason})
    return key


def dead(
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, tool: Any = charge, reason: str = "no connection"
) -> str:
    """The key of a call that gave up."""
    key, id_ = one(bank, conn, tool)
    hands.claim([id_])
    conn.execute("UPDATE tool SET attempts = 1")
    hands.finish(id_, 1, "retry", error={"reason": reason})
    conn.execute("UPDATE tool SET attempts = 10")
    return key


def status(conn: psycopg.Connection, key: str) -> str:
    """Where the call stands."""
    query = "SELECT o.status FROM outcome o JOIN action a ON a.id = o.action_id WHERE a.key = %s"
    ((found,),) = conn.execute(query, [key]).fetchall()
    return str(found)


# ---- calls


def test_what_is_open_is_listed_and_why(
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands
) -> None:
    done, id_ = one(bank, conn)
    hands.claim([id_])
    hands.finish(id_, 1, result={"id": "x"})
    doubt = doubtful(bank, conn, hands)
    run = decide(bank, mail(to="a", text="1"), mail(to="a", text="2"))
    deedbox("tools", "pause", "send_mail")
    paused = deedbox("calls", "list", "--json").json
    assert [(row["key"], row["status"]) for row in paused] == [
        (f"{run.id}:1:1", "pending"),
        (f"{run.id}:1:0", "pending"),
        (doubt, "in_doubt"),
    ]
    shown = deedbox("calls", "list").out
    assert "its tool is paused" in shown
    assert "the answer was lost" in shown
    assert done not in shown
    deedbox("tools", "resume", "send_mail")
    assert f"it waits for {run.id}:1:0" in deedbox("calls", "list", "--run", run.id).out
    assert done in deedbox("calls", "list", "--status", "done").out
    assert len(deedbox("calls", "list", "--status", "all", "--json").json) == 4
    assert [row["key"] for row in deedbox("calls", "list", "--status", "in_doubt", "--json").json] == [doubt]
    assert "--limit 10 shows them" in deedbox("calls", "list", "--limit", "1").out
    assert deedbox("calls", "list", "--tool", "nothing").out == "No such call is there.\n"


def test_a_call_is_shown_with_all_that_was_done_to_it(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection, hands: Hands, deedbox: Commands
) -> None:
    key = doubtful(bank, conn, hands)
    ((box,),) = conn.execute("SELECT id FROM box").fetchall()
    shown = deedbox("calls", "show", key)
    assert f"{box}:{key}" in shown.out
    assert f"deedbox calls resolve {key} --did-not-happen" in shown.out
    assert "looked at again" not in shown.out  # it waits for a person
    deedbox(
        "calls", "resolve", key, "--did-not-happen", "--again", "--rekey", "--by", "ann", "--note", "not in its list"
    )
    assert hands.take()
    hands.finish(UUID(deedbox("calls", "show", key, "--json").json["id"]), 2, result={"id": "ch_1"})
    shown = deedbox("calls", "show", key)
    assert f"{box}:{key}~1" in shown.out
    assert "not in its list" in shown.out
    assert "redriven by ann" in shown.out
    assert "looked at again" not in shown.out
    told = deedbox("calls", "show", key, "--json").json
    assert (told["status"], told["next_at"], told["provider_key"]) == ("done", None, f"{box}:{key}~1")
    assert [act["verb"] for act in told["audit"]] == ["resolve", "rekey"]
    assert [letter["closed_as"] for letter in told["dead"]] == ["redriven"]


def test_an_effect_after_closing_is_what_comes_first(
    bank: Deedbox, shop: Shop, conn: psycopg.Connection, hands: Hands, deedbox: Commands
) -> None:
    assert deedbox("calls", "late").out == "Nothing came too late.\n"
    keys = []
    with shop.hands() as stopped:
        for closing in (True, False):
            key, id_ = one(bank, conn, refund)
            keys.append(key)
            stopped.claim([id_])
            stopped.finish(id_, 1, "unknown", error={"reason": "cut"}, delay="1 s")
            if closing:
                deedbox("calls", "resolve", key, "--did-not-happen")
            else:
                conn.execute("UPDATE outcome SET owner = NULL")  # as the sweep leaves it
            stopped.finish(id_, 1, "done", result={"id": "re_1"})
    rows = deedbox("calls", "late", "--json").json
    assert [(row["key"], row["alarm"], row["settled"], row["now"]) for row in rows] == [
        (keys[0], True, False, "gave_up"),
        (keys[1], False, True, "done"),
    ]
    assert "an effect after closing" in deedbox("calls", "late").out
    assert "an effect after closing" in deedbox("calls", "show", keys[0]).out
    assert deedbox("calls", "resolve", keys[0], "--happened", '{"id": "re_1"}').code == 0
    assert [row["now"] for row in deedbox("calls", "late", "--tool", "refund", "--json").json] == ["done", "done"]


@pytest.mark.parametrize(
    ("happened", "why"),
    [
        ("ch_1", "no JSON"),
        ("[]", "not a list"),
        ("null", "not null"),
        ("{}", "id is missing"),
        ('{"id": "ch_1", "cents": 1}', "cents is not one of id"),
        ('{"id": 5}', "id is a number and must be a text"),
        ('{"id": null}', "id is null and must be a text"),
        ('{"id": "a", "id": "b"}', "stands twice"),
        ('{"id": "a\\u0000b"}', "NUL"),
        ('{"id": "\\ud800"}', "surrogate"),
        ('{"id": "\udcff"}', "surrogate"),
        ('{"id": NaN}', "nan"),
    ],
)
def test_a_result_is_checked_before_anything_is_written(  # I14
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands, happened: str, why: str
) -> None:
    key = doubtful(bank, conn, hands)
    ended = deedbox("calls", "resolve", key, "--happened", happened)
    assert ended.code == 2
    assert why in " ".join(ended.err.replace("│", "").split())
    assert status(conn, key) == "in_doubt"
    assert conn.execute("SELECT count(*) FROM audit").fetchone() == (0,)


def test_saying_it_again_does_nothing_and_saying_something_else_is_refused(
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands
) -> None:
    key = doubtful(bank, conn, hands)
    assert deedbox("calls", "resolve", key, "--happened", RESULT).code == 0
    assert deedbox("calls", "resolve", key, "--happened", RESULT).code == 0
    assert deedbox("calls", "resolve", key, "--happened", '{"id": "ch_2"}').code == 3
    assert deedbox("calls", "resolve", key, "--did-not-happen").code == 3
    key = doubtful(bank, conn, hands)
    assert deedbox("calls", "resolve", key, "--did-not-happen").code == 0
    assert deedbox("calls", "resolve", key, "--did-not-happen").code == 0
    assert deedbox("calls", "resolve", key, "--did-not-happen", "--again").code == 0
    assert status(conn, key) == "pending"
    assert deedbox("calls", "resolve", key, "--did-not-happen", "--again").code == 0
    hands.take()
    assert "under way" in deedbox("calls", "resolve", key, "--did-not-happen").out
    assert conn.execute("SELECT count(*) FROM audit").fetchone() == (3,)


def test_what_is_closed_is_not_performed_again_without_a_word(
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands
) -> None:
    key, id_ = one(bank, conn, wire)
    hands.claim([id_])
    hands.finish(id_, 1, "refused", error={"code": "no_funds", "message": "no"})
    assert deedbox("calls", "resolve", key, "--did-not-happen").code == 0
    ended = deedbox("calls", "resolve", key, "--did-not-happen", "--again")
    assert (ended.code, "its status is refused" in ended.out) == (3, True)


def test_what_may_not_be_performed_again_is_not_made_a_dead_letter_on_the_way(
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands
) -> None:
    key = doubtful(bank, conn, hands)
    conn.execute("UPDATE tool SET expires = '1 ms'")
    ended = deedbox("calls", "resolve", key, "--did-not-happen", "--again")
    assert ended.code == 3
    assert "its deadline has passed" in ended.out
    assert status(conn, key) == "in_doubt"
    assert conn.execute("SELECT count(*) FROM audit").fetchone() == (0,)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--happened", RESULT, "--did-not-happen"],
        ["--happened", RESULT, "--again"],
        ["--did-not-happen", "--rekey"],
        ["--did-not-happen", "--by", " "],
        ["--did-not-happen", "--note", "\udcff"],
        ["--did-not-happen", "--note", "x" * 2001],
    ],
)
def test_what_makes_no_sense_is_refused(
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands, words: list[str]
) -> None:
    key = doubtful(bank, conn, hands)
    assert deedbox("calls", "resolve", key, *words).code == 2
    assert status(conn, key) == "in_doubt"


def test_what_is_not_there_is_said_in_the_command_line_s_own_words(deedbox: Commands) -> None:
    for words, told in (
        (["calls", "resolve", "r:1:0", "--did-not-happen"], "There is no call r:1:0"),
        (["calls", "resolve", "r:1:0", "--happened", RESULT], "There is no call r:1:0"),
        (["calls", "show", "r:1:0"], "There is no call r:1:0"),
        (["dead", "show", "r:1:0"], "There is no call r:1:0"),
        (["dead", "redrive", "r:1:0"], "There is no call r:1:0"),
        (["calls", "show", "\udcff"], "is not one of ours"),
        (["runs", "show", "nothing"], "`deedbox runs list`"),
        (["runs", "show", "\udcff"], "cannot be used"),
        (["tools", "pause", "nothing"], "`deedbox tools list`"),
        (["calls", "list", "--run", "a b"], "cannot be used"),
        (["dead", "list", "--since", "yesterday"], "is no moment"),
    ):
        ended = deedbox(*words)
        assert ended.code == 2, words
        assert told in ended.err, words
        assert not ended.out


# ---- dead


def test_dead_letters_are_found_by_what_is_known_of_them(
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands
) -> None:
    assert deedbox("dead", "list").out == "There are no dead letters.\n"
    charged, read = dead(bank, conn, hands), dead(bank, conn, hands, lookup, "429 of 100%_")

    def found(*words: str) -> list[str]:
        return [row["key"] for row in deedbox("dead", "list", "--json", *words).json]

    assert found() == [read, charged]
    assert found("--tool", "read_order") == [read]
    assert found("--run", charged.partition(":")[0]) == [charged]
    assert found("--reason", "100%_") == [read]
    assert found("--reason", "no%connection") == []
    assert found("--since", "1h") == [read, charged]
    assert found("--before", "1h") == []
    conn.execute("UPDATE dead SET at = at - interval '3 h' WHERE key = %s", [charged])
    assert found("--before", "2h") == [charged]
    assert found("--since", "2h", "--before", "2999-01-01") == [read]
    assert found("--limit", "1") == [read]
    assert "There are more" in deedbox("dead", "list", "--limit", "1").out


def test_a_dead_letter_says_what_can_be_done(
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands
) -> None:
    key = dead(bank, conn, hands)
    told = deedbox("dead", "show", key, "--json").json
    assert (told["redrive"], told["redrive_rekey"]) == ("redriven", "redriven")
    conn.execute("UPDATE outcome SET first_sent_at = first_sent_at - interval '25 h'")
    shown = deedbox("dead", "show", key).out
    assert "--rekey gives it a new one" in shown
    assert "after 1 attempts: no connection" in shown
    deedbox("dead", "drop", key, "--by", "ann")
    shown = deedbox("dead", "show", key).out
    assert "by ann" in shown
    assert "what can be done" not in shown
    alive, _ = one(bank, conn)
    assert "It has no dead letter." in deedbox("dead", "show", alive).out


def test_which_are_meant_must_be_said(bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands) -> None:
    key = dead(bank, conn, hands)
    for verb in ("redrive", "drop"):
        ended = deedbox("dead", verb)
        assert ended.code == 2
        assert "--all" in ended.err
        assert deedbox("dead", verb, key, "--all").code == 2
        assert deedbox("dead", verb, "--tool", "charge_customer", "--all").code == 2
    assert status(conn, key) == "gave_up"


def test_a_dry_run_counts_what_would_be_done_and_writes_nothing(
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands
) -> None:
    old = dead(bank, conn, hands)
    conn.execute("UPDATE outcome SET first_sent_at = first_sent_at - interval '25 h'")
    keys = [old, *(dead(bank, conn, hands, tool) for tool in (charge, charge, wire))]
    before = conn.execute("SELECT * FROM outcome").fetchall()
    ended = deedbox("dead", "redrive", "--all", "--dry-run")
    assert ended.code == 3
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["2", "charge_customer", "redriven", "after", "1", "attempts:", "no", "connection"] in lines
    assert ["1", "charge_customer", "window_over", "after", "1", "attempts:", "no", "connection"] in lines
    assert ["1", "wire_money", "redriven", "after", "1", "attempts:", "no", "connection"] in lines
    told = deedbox("dead", "redrive", "--all", "--dry-run", "--json")
    assert told.json["counts"] == {"redriven": 3, "window_over": 1}
    assert {call["key"] for call in told.json["calls"]} == set(keys)
    assert deedbox("dead", "redrive", "--all", "--dry-run", "--rekey").code == 0
    assert deedbox("dead", "drop", "--all", "--dry-run", "--json").json["counts"] == {"dropped": 4}
    assert conn.execute("SELECT * FROM outcome").fetchall() == before
    assert conn.execute("SELECT count(*) FROM dead WHERE closed_at IS NOT NULL").fetchone() == (0,)


def test_redriven_is_performed_and_said_again_does_nothing(  # I6 I10
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands
) -> None:
    old, young = dead(bank, conn, hands), dead(bank, conn, hands, wire)
    conn.execute("UPDATE outcome SET first_sent_at = first_sent_at - interval '25 h' WHERE tool = 'charge_customer'")
    ended = deedbox("dead", "redrive", "--since", "1h", "--by", "ann", "--note", "it is back")
    assert ended.code == 3
    assert "--rekey" in ended.out
    assert old in ended.out
    assert (status(conn, old), status(conn, young)) == ("gave_up", "pending")
    assert deedbox("dead", "redrive", young).code == 0
    assert deedbox("dead", "redrive", "--tool", "wire_money").out == (
        "No dead letter is meant by that: there was nothing to do.\n"
    )
    assert deedbox("dead", "redrive", old, "--rekey", "--json").json["counts"] == {"redriven": 1}
    assert conn.execute("SELECT who, verb, note FROM audit WHERE key = %s", [young]).fetchall() == [
        ("ann", "redrive", "it is back")
    ]
    assert len(hands.take()) == 2


def test_more_than_a_batch(
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deedbox.cli.batches.SIZE", 2)
    keys = [dead(bank, conn, hands) for _ in range(5)]
    assert deedbox("dead", "redrive", *keys, keys[0], "--json").json["counts"] == {"redriven": 5}
    assert SIZE == 500


def test_stopped_between_two_batches(
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [dead(bank, conn, hands) for _ in range(3)]
    monkeypatch.setattr("deedbox.cli.batches.SIZE", 2)

    def interrupted(ids: Any, act: Any) -> Any:
        def once(batch: Any) -> Any:
            if len(batch) < 2:
                raise KeyboardInterrupt
            return act(batch)

        return in_batches(ids, once)

    monkeypatch.setattr("deedbox.cli.dead.in_batches", interrupted)
    ended = deedbox("dead", "drop", "--all")
    assert (ended.code, ended.out) == (130, "")
    assert ended.err == "stopped: 2 of 3 are done and stay so; the same command goes on with the rest\n"
    monkeypatch.setattr("deedbox.cli.dead.in_batches", in_batches)
    assert deedbox("dead", "drop", "--all", "--json").json["counts"] == {"dropped": 1}
    assert {status(conn, key) for key in keys} == {"gave_up"}


def test_what_stands_in_the_way_of_an_order_is_passed_by_its_key(
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands
) -> None:
    run = decide(bank, ship(to="a", text="1"), ship(to="a", text="2"))
    first, second = ids(conn, run)
    hands.claim([first])
    hands.finish(first, 1, "refused", error={"code": "no", "message": "closed"}, unsettled=False)
    assert hands.claim([second]) == {second: ("blocked", None)}
    assert deedbox("dead", "drop", f"{run.id}:1:0", "--dry-run", "--json").json["counts"] == {"passed": 1}
    assert deedbox("dead", "drop", f"{run.id}:1:0", "--json").json["counts"] == {"passed": 1}
    assert deedbox("dead", "drop", f"{run.id}:1:0", "--json").json["counts"] == {"not_dead": 1}
    assert hands.claim([second]) == {second: ("claimed", 1)}


# ---- tools


def test_tools_are_paused_and_resumed(bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands) -> None:
    _, id_ = one(bank, conn)
    assert deedbox("tools", "pause", "charge_customer", "--by", "ann", "--note", "storm").code == 0
    assert hands.claim([id_]) == {id_: ("paused", None)}
    deedbox.screen(80)
    assert [tool["paused_by"] for tool in deedbox("tools", "list", "--json").json if tool["paused"]] == ["ann"]
    lines = deedbox("tools", "list").out.splitlines()
    assert lines[-1].startswith("charge_customer is paused since ")
    assert lines[-1].endswith("Z by ann: storm")
    assert lines[0].split() == ["tool", "effect", "deadline", "attempts", "window", "paused"]
    assert lines[1].split() == ["charge_customer", "provider_key", "1m", "10", "24h", "yes"]
    assert lines[2].split() == ["pay_out", "provider_key+probe", "1m", "10", "24h"]
    assert all(len(line) <= 80 for line in lines)
    assert deedbox("tools", "resume", "charge_customer", "--json").json == {"tool": "charge_customer", "paused": False}
    assert hands.claim([id_]) == {id_: ("claimed", 1)}
    assert [tool["paused"] for tool in deedbox("tools", "list", "--json").json] == [False] * 7


# ---- screens


LONG = "0198a6c2-7b1e-7c61-b7a8-1d2f3a4b5c6d-nightly"


@pytest.mark.parametrize("columns", [80, 100, 200, None])
def test_ids_and_times_stay_whole_on_every_screen(
    bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands, columns: int | None
) -> None:
    reason = "ReadTimeout: the provider did not answer within 60 s; \x1b[31mred\x1b[0m \u202edlo\u202c \udc9f " * 2
    for run_id in ("short", LONG):
        for turn in bank.run(run_id, messages=[{"role": "user", "content": "go"}]):
            turn.commit(calls=[wire(customer="c", cents=1), charge(customer="c", cents=1)])
            break
    conn.execute("UPDATE tool SET attempts = 1")
    for id_, attempt in hands.take().items():
        hands.finish(id_, attempt, "unknown", error={"reason": reason.encode("utf-8", "backslashreplace").decode()})
    deedbox("calls", "resolve", f"{LONG}:1:1", "--did-not-happen", "--note", reason[:60])
    deedbox.screen(columns)
    for words in (
        ["runs", "list"],
        ["calls", "list"],
        ["calls", "show", f"{LONG}:1:1"],
        ["dead", "list"],
        ["dead", "show", f"{LONG}:1:1"],
        ["dead", "redrive", "--all", "--dry-run"],
        ["tools", "list"],
    ):
        ended = deedbox(*words)
        assert ended.code == 0, ended
        for line in ended.out.splitlines():
            assert "\x1b" not in line
            assert "\u202e" not in line
            assert len(line) <= (columns or 10_000), words
        if words[0] in {"runs", "calls"}:
            assert LONG in ended.out
            moments = [word for word in ended.out.replace(",", "").split() if word.startswith("20") and "-" in word]
            assert moments, words
            assert all(f"{moment} " in ended.out for moment in moments)  # the time of day stands on the same line


def test_a_run_is_shown_whatever_was_said_in_it(box: Deedbox, deedbox: Commands) -> None:
    said = "half \udcff of a pair, \x1b[31mred"
    for turn in box.run("odd", messages=[user(said)]):
        turn.commit(says(said))
    deedbox.screen(80)
    shown = deedbox("runs", "show", "odd")
    assert shown.code == 0
    assert "\\udcff" in shown.out
    assert "\x1b" not in shown.out
    told = deedbox("runs", "show", "odd", "--json").json
    assert told["status"] == "finished"
    assert told["steps"][0]["messages"] == [user(said)]
    assert told["created_at"].endswith("Z")


def test_every_json_is_one_value(bank: Deedbox, conn: psycopg.Connection, hands: Hands, deedbox: Commands) -> None:
    key = dead(bank, conn, hands)
    for words in (
        ["runs", "list"],
        ["runs", "show", key.partition(":")[0]],
        ["calls", "list"],
        ["calls", "late"],
        ["calls", "show", key],
        ["calls", "resolve", key, "--did-not-happen"],
        ["dead", "list"],
        ["dead", "show", key],
        ["dead", "redrive", key, "--dry-run"],
        ["dead", "drop", key],
        ["tools", "list"],
        ["tools", "pause", "charge_customer"],
        ["tools", "resume", "charge_customer"],
    ):
        ended = deedbox(*words, "--json")
        assert (ended.code, ended.err) == (0, ""), words
        json.loads(ended.out)
