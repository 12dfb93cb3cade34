"""Which test modules start first, and which ones `pytest -m smoke` takes. Paths are relative to this directory."""

from pathlib import Path

LONGEST = (
    "escape/test_escape.py",
    "outcomes/test_budgets.py",
    "outcomes/test_limits.py",
    "escape/test_mutation.py",
    "supervisor/test_machines.py",
    "pool/test_chaos.py",
    "supervisor/test_shared_state.py",
    "structure/test_protected.py",
    "hosts/test_embedders.py",
    "cli/test_demo.py",
    "hosts/test_interpreters.py",
    "outcomes/test_outcomes.py",
    "pool/test_failures.py",
    "supervisor/test_embedding.py",
    "pool/test_scarce.py",
    "pool/test_recovery.py",
    "dispatch/test_modules.py",
    "pool/test_reserve.py",
    "hosts/test_containers.py",
    "pool/test_kept.py",
    "structure/test_closing.py",
    "workplaces/test_untidy_end.py",
    "http/test_cells.py",
    "docs/test_blocks.py",
    "structure/test_ahead.py",
    "structure/test_output.py",
    "structure/test_three_levels.py",
    "network/test_proxy.py",
    "structure/test_daily_work.py",
    "backends/test_web.py",
)
"""The modules that take longest, the longest first, by `pytest --durations=0`. They only set an order: a module that
is missing here, or has become fast, ends later or earlier."""

SMOKE = (
    "backends/test_guard.py",
    "backends/test_memory.py",
    "cli/test_help.py",
    "config/test_errors.py",
    "config/test_http.py",
    "config/test_layers.py",
    "dispatch/test_policy.py",
    "dispatch/test_toolsets.py",
    "escape/test_escape.py::test_no_namespaces_is_no_worse_where_not_even_an_empty_unshare_is_allowed",
    "http/test_checks.py",
    "http/test_credentials.py",
    "network/test_confinement.py",
    "network/test_head.py",
    "network/test_policy.py",
    "network/test_rules.py",
    "outcomes/test_outcomes.py::test_a_cell_that_lied_is_not_used_again_and_an_honest_one_is",
    "pool/cell/test_state.py",
    "pool/test_budget.py",
    "wire/test_fast.py",
    "pool/test_parts.py",
    "pool/test_plan.py",
    "pool/test_pool.py",
    "pool/test_preload.py",
    "pool/test_relay.py",
    "sandbox/test_explain.py",
    "sandbox/test_kernel.py",
    "sandbox/test_mounts.py",
    "sandbox/test_profile.py",
    "sandbox/test_protected.py",
    "sandbox/test_seccomp.py",
    "sandbox/test_spawn.py",
    "schemas/test_foreign.py",
    "schemas/test_validate.py",
    "sessions/test_broker.py",
    "structure/test_calls.py",
    "structure/test_grants.py",
    "structure/test_sessions.py",
    "supervisor/test_plain_asyncio.py",
    "supervisor/test_usage.py",
    "telemetry/test_histogram.py",
    "telemetry/test_recent.py",
    "testing/test_context.py",
    "tools/test_base_tools.py",
    "tools/test_binder.py",
    "tools/test_declaration.py",
    "tools/test_definition.py",
    "tools/test_derivation.py",
    "tools/test_result.py",
    "tools/test_schema.py",
    "tools/test_typed.py",
    "tools/test_workspace.py",
    "wire/test_frames.py",
    "wire/test_messages.py",
    "wire/test_protocol.py",
)
"""The main path of each package, by module or by test; about 30 s on two cores."""

HERE = Path(__file__).parent
_FILES = {HERE / name.partition("::")[0]: name.partition("::")[2] for name in SMOKE}


def rank(path: Path) -> int:
    """The place of this module among those that take longest; all others share the last."""
    return _RANKS.get(path, len(LONGEST))


def is_smoke(path: Path, test: str = "") -> bool:
    """Whether `-m smoke` takes this test, or without one, anything of this module."""
    return path in _FILES and (not test or _FILES[path] in ("", test))


_RANKS = {HERE / name: place for place, name in enumerate(LONGEST)}
