"""The rules for declarations: what is refused, and what would do instead."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import toolcell
from toolcell_tools import Capability, PermissionTier, ToolDefinitionError, tool
from toolcell_tools.options import (
    capabilities,
    check_known,
    check_limits,
    check_metadata,
    check_name,
    check_positive,
    legal_names,
    suggested_name,
)


@given(st.text(max_size=80))
@example("Handoff")
@example("Toolcell X")
@example("toolcell_" + "x" * 60)
@example("tool__" * 12)
def test_the_name_that_is_suggested_may_be_taken(name: str) -> None:
    assert check_name(suggested_name(name)) == suggested_name(name)


@given(st.from_regex(r"[a-z][a-z0-9]{0,5}(_[a-z0-9]{1,5}){0,4}", fullmatch=True))
def test_a_usual_name_is_its_own_suggestion(name: str) -> None:
    assert suggested_name(name) == name


FOREIGN = st.text(max_size=80) | st.sampled_from(["SearchTool", "searchFiles", "search_files", "handoff", "", "x" * 99])


@given(st.lists(FOREIGN, max_size=12), st.sampled_from(["", "srv_", "Srv."]), st.sets(FOREIGN, max_size=3))
def test_foreign_names_become_legal_names_that_all_differ(names: list[str], prefix: str, taken: set[str]) -> None:
    found = legal_names(names, prefix=prefix, taken=taken)
    assert list(found) == list(dict.fromkeys(names)) and len(set(found.values())) == len(found)
    assert [check_name(one) for one in found.values()] == [*found.values()] and not taken & set(found.values())
    assert legal_names(reversed(names), prefix=prefix, taken=taken) == found


def test_a_foreign_name_becomes_the_nearest_one_and_a_legal_name_stays() -> None:
    assert legal_names(["searchFiles", "SearchTool", "search_files"]) == {
        "searchFiles": "tool_search_files_765492",
        "SearchTool": "search_tool",
        "search_files": "search_files",
    }
    assert toolcell.legal_names is legal_names


@pytest.mark.parametrize("name", ["handoff", "toolcell_status", "toolcell_" + "x" * 54])
def test_the_refusal_of_a_reserved_name_has_one_that_would_do(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match=r"is reserved. Rename the function or pass name='my_") as refused:
        check_name(name)
    assert check_name(str(refused.value).rpartition("name='")[2].removesuffix("'."))


@pytest.mark.parametrize("value", [0, -1, float("nan"), True, "5", [1]], ids=repr)
def test_what_is_no_number_above_zero_is_refused_by_the_options_name(value: Any) -> None:
    with pytest.raises(ToolDefinitionError, match=r"^tool 't': timeout=.*Pass a number above 0"):
        check_positive("t", "timeout", value)
    with pytest.raises(ToolDefinitionError, match=r"^tool 't': limits\['wall_s'\]="):
        check_limits("t", {"wall_s": value})


def test_numbers_above_zero_and_none_pass() -> None:
    assert [check_positive("t", "timeout", value) for value in (0.5, 3, None)] == [0.5, 3, None]
    given = {"wall_s": 1.0}
    assert check_limits("t", None) is None and check_limits("t", given) == given is not check_limits("t", given)


def test_an_unknown_option_is_refused_with_the_nearest_one_or_all() -> None:
    check_known("t", ["needs"], ["needs", "uses"])
    with pytest.raises(ToolDefinitionError, match=r"no option 'neds'. Did you mean 'needs'\?"):
        check_known("t", ["neds"], ["needs", "uses"])
    with pytest.raises(ToolDefinitionError, match=r"no option 'zzz'. There are: needs, uses\."):
        check_known("t", ["zzz"], ["uses", "needs"])


def test_capabilities_are_given_by_member_or_by_value_and_not_as_one_text() -> None:
    assert capabilities("t", "needs", ["read", Capability.WRITE]) == {Capability.READ, Capability.WRITE}
    with pytest.raises(ToolDefinitionError, match=r"needs='read' is not a set. Write needs=\{'read'\}"):
        capabilities("t", "needs", "read")
    with pytest.raises(ToolDefinitionError, match=r"'reed' is not a valid Capability. Use members of Capability: "):
        capabilities("t", "needs", ["reed"])


def test_metadata_is_a_copy_of_plain_data() -> None:
    given = {"a": [1]}
    kept = check_metadata("t", given)
    given["a"].append(2)
    assert kept == {"a": [1]}
    with pytest.raises(ToolDefinitionError, match=r"^tool 't': metadata is not JSON data: "):
        check_metadata("t", {"a": object()})


@pytest.mark.parametrize(
    ("needs", "uses", "tier"),
    [
        (set(), set(), PermissionTier.READ_ONLY),
        ({Capability.READ, Capability.MEMORY_READ, Capability.WEB}, set(), PermissionTier.READ_ONLY),
        ({Capability.READ, Capability.WRITE}, set(), PermissionTier.WORKSPACE),
        ({Capability.MEMORY_WRITE}, set(), PermissionTier.WORKSPACE),
        ({Capability.READ}, {Capability.HTTP}, PermissionTier.SYSTEM),
        ({Capability.EXEC}, set(), PermissionTier.SYSTEM),
        ({Capability.CHANNEL}, set(), PermissionTier.SYSTEM),
    ],
)
def test_the_tier_follows_from_what_a_tool_may_touch(
    needs: set[Capability], uses: set[Capability], tier: PermissionTier
) -> None:
    def do() -> None: ...

    assert tool(do, needs=needs, uses=uses).tier is tier
