"""Which test modules start first, and which ones `pytest -m smoke` takes. Paths are relative to this directory."""

from pathlib import Path

LONGEST = (
    "escape/test_escape.py",
    "behaviour/protected/test_protected.py",
    "docs/test_blocks.py",
    "behaviour/hosts/test_interpreters.py",
    "behaviour/hosts/test_embedders.py",
    "behaviour/outcomes/test_budgets.py",
    "behaviour/network/test_proxy.py",
    "behaviour/mcp/test_hostile.py",
    "behaviour/files/test_daily_work.py",
    "cli/test_doctor.py",
    "behaviour/state/test_shared_state.py",
    "escape/test_mutation.py",
    "behaviour/durable/test_disk.py",
    "behaviour/outcomes/test_limits.py",
    "behaviour/pool/test_ahead.py",
    "docs/test_examples.py",
    "behaviour/pool/test_failures.py",
    "behaviour/outcomes/test_outcomes.py",
    "behaviour/durable/test_kill.py",
    "cli/test_demo.py",
    "behaviour/durable/test_audit.py",
    "behaviour/durable/test_results.py",
    "fast/test_switches.py",
    "behaviour/protected/test_cells.py",
    "behaviour/lifetime/test_embedding.py",
    "behaviour/lifetime/test_untidy_end.py",
    "behaviour/hosts/test_machines.py",
    "pool/test_recovery.py",
    "behaviour/lifetime/test_lifetime.py",
    "behaviour/pool/test_chaos.py",
    "behaviour/calls/test_output.py",
    "behaviour/calls/test_approval.py",
    "behaviour/calls/test_concurrency.py",
    "behaviour/calls/test_calls.py",
)
"""The modules that take longest, the longest first, by `pytest --durations=0`. They only set an order: a module that
is missing here, or has become fast, ends later or earlier."""

SMOKE = (
    "adapters/test_session_calls.py",
    "approvals/test_store.py",
    "backends/egress/test_head.py",
    "backends/egress/test_rules.py",
    "backends/http/test_checks.py",
    "backends/test_guard.py",
    "backends/test_memory.py",
    "behaviour/calls/test_calls.py",
    "behaviour/lifetime/test_plain_asyncio.py",
    "behaviour/network/test_confinement.py",
    "behaviour/outcomes/test_outcomes.py::test_a_cell_that_lied_is_not_used_again_and_an_honest_one_is",
    "behaviour/outcomes/test_usage.py",
    "behaviour/sessions/test_sessions.py",
    "behaviour/settings/test_http.py",
    "behaviour/tools/test_derivation.py",
    "behaviour/tools/test_toolsets.py",
    "cli/test_app.py",
    "config/test_load.py",
    "config/test_schema.py",
    "mcp/client/test_register.py",
    "test_batch.py",
    "test_channel_policy.py",
    "test_policy.py",
    "test_web_rules.py",
    "test_retrying.py",
    "dispatch/test_validate.py",
    "escape/test_escape.py::test_no_namespaces_is_no_worse_where_not_even_an_empty_unshare_is_allowed",
    "journal/test_journal.py",
    "state/test_directory.py",
    "pool/cell/test_state.py",
    "pool/test_budget.py",
    "pool/test_parts.py",
    "pool/test_plan.py",
    "pool/test_pool.py",
    "rollouts/test_launch.py::test_each_attempt_has_a_session_a_workspace_and_a_frozen_trajectory",
    "runner/test_relay.py",
    "sandbox/mechanisms/test_mounts.py",
    "sandbox/mechanisms/test_seccomp.py",
    "sandbox/test_explain.py",
    "sandbox/test_kernel.py",
    "sandbox/test_network.py",
    "sandbox/test_profile.py",
    "sandbox/test_protected.py",
    "sandbox/test_spawn.py",
    "sessions/test_broker.py",
    "sessions/test_grants.py",
    "sessions/test_preloading.py",
    "telemetry/test_histogram.py",
    "test_credentials.py",
    "test_http_rules.py",
    "test_profile.py",
    "test_usage_limits.py",
    "testing/test_contexts.py",
    "tools/test_base.py",
    "tools/test_binder.py",
    "tools/test_declaration.py",
    "tools/test_definition.py",
    "tools/test_foreign.py",
    "tools/test_result.py",
    "tools/test_schema.py",
    "tools/test_typed.py",
    "tools/test_workspace.py",
    "fast/test_frames.py",
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
