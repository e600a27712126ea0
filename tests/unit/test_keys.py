"""Keys come from position and can be taken apart again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbox.errors import InvalidKey, InvalidRunId, InvalidToolName
from deedbox.keys import call_key, check_run_id, check_tool_name, idempotency_key, split_key

run_ids = st.from_regex(r"[A-Za-z0-9._~-]{1,128}", fullmatch=True)
numbers = st.integers(min_value=0, max_value=2**31 - 1)


def test_a_key_reads_run_step_call() -> None:  # I3
    assert call_key("order-8812", 3, 0) == "order-8812:3:0"


@given(run_ids, numbers, numbers)
def test_a_key_comes_apart_as_it_was_put_together(run_id: str, step: int, call: int) -> None:  # I3
    assert split_key(call_key(run_id, step, call)) == (run_id, step, call)


@pytest.mark.parametrize("key", ["", "a", "a:1", "a:1:", "a:1:2:3", "a:01:0", "a:-1:0", "a b:1:0", "a:1:x", "a:1:٣"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidKey, match="run:step:call"):
        split_key(key)


@pytest.mark.parametrize("run_id", ["a", "order-8812", "A.b_c~d-9", "x" * 128])
def test_a_run_id_within_the_rule_comes_back(run_id: str) -> None:
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize("run_id", ["", "x" * 129, "a:b", "a b", "a/b", "ä", "a\n", "a\0"])
def test_a_run_id_outside_the_rule_is_refused_by_name(run_id: str) -> None:
    with pytest.raises(InvalidRunId, match="1 to 128 characters") as caught:
        check_run_id(run_id)
    assert caught.value.run_id == run_id


@pytest.mark.parametrize("name", ["", "1a", "_step", "Charge", "charge-customer", "a" * 64, "a\n", "a.b"])
def test_a_tool_name_that_is_no_topic_is_refused(name: str) -> None:
    with pytest.raises(InvalidToolName, match="title="):
        check_tool_name(name)


def test_a_tool_name_within_the_rule_comes_back() -> None:
    assert check_tool_name("a" * 63) == "a" * 63


def test_the_provider_gets_the_box_in_front_of_the_key() -> None:  # I6
    assert idempotency_key("k3v9x0aa", "order-8812:3:0") == "k3v9x0aa:order-8812:3:0"
