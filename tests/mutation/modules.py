"""The modules whose lines hold a promise, and the tests that hold the lines: the nearest first, a kill ends the run."""

from dataclasses import dataclass

ESCAPE = ("tests/escape/test_escape.py", "-k", "root")
"""The attack suite on one of its five kinds of machine: all of them take minutes for one mutant."""


@dataclass(frozen=True, slots=True)
class Held:
    """`near` is run on every mutant of the module; `far`, which takes longer, on those that `near` lets live."""

    near: tuple[str, ...]
    far: tuple[str, ...] = ()


def held(*near: str, far: tuple[str, ...] = ()) -> Held:
    return Held(tuple(f"tests/{name}.py" for name in near), far)


def beside(root: str, rows: dict[str, Held]) -> dict[str, Held]:
    return {f"{root}/{name}.py": row for name, row in rows.items()}


_TREES = ("audit", "look", "facts", "quarantine", "walker", "git_allowed", "git_settings_copy")

MODULES: dict[str, Held] = {
    **beside(
        "sandbox/toolcell_sandbox",
        {
            "trees/protected": held("sandbox/test_protected", "sandbox/test_audit", "behaviour/protected/test_cells"),
            **dict.fromkeys(
                tuple(f"trees/{name}" for name in _TREES),
                held(
                    "sandbox/test_walker",
                    "sandbox/test_quarantine",
                    "sandbox/test_audit",
                    "sandbox/test_gitstate",
                    "behaviour/protected/test_hostile_trees",
                    "behaviour/protected/test_protected",
                    "behaviour/protected/test_cells",
                ),
            ),
            "trees/targets": held("sandbox/test_targets", "sandbox/test_audit", "behaviour/protected/test_protected"),
            "trees/repositories": held(
                "sandbox/test_repositories", "sandbox/test_audit", "behaviour/protected/test_protected"
            ),
            "trees/git_settings": held("sandbox/test_gitconfig"),
            "profile": held(
                "sandbox/test_profile", "config/test_narrowing", "sandbox/mechanisms/test_mounts", far=ESCAPE
            ),
            "limits": held(
                "sandbox/test_limits", "sandbox/test_profile", "config/test_narrowing", "config/test_schema"
            ),
            "network": held(
                "sandbox/test_network", "backends/egress/test_decision", "sandbox/test_profile", "config/test_schema"
            ),
            "view": held(
                "sandbox/test_view",
                "sandbox/mechanisms/test_mounts",
                "behaviour/protected/test_cells",
                "sandbox/test_enter",
                far=ESCAPE,
            ),
            "enter": held(
                "sandbox/test_enter",
                "sandbox/test_prespawn",
                "sandbox/mechanisms/test_loopback",
                "sandbox/test_spawn",
                far=ESCAPE,
            ),
            "mechanisms/bpf": held(
                "sandbox/mechanisms/test_bpf",
                "sandbox/mechanisms/test_seccomp",
                "sandbox/test_explain",
                "sandbox/test_enter",
                far=ESCAPE,
            ),
            "mechanisms/capabilities": held("sandbox/test_enter", "sandbox/test_kernel", far=ESCAPE),
            "mechanisms/cgroup_tree": held("sandbox/mechanisms/test_cgroup_tree", "sandbox/mechanisms/test_cgroups"),
            "mechanisms/cgroups": held(
                "sandbox/mechanisms/test_cgroups", "sandbox/mechanisms/test_cgroup_tree", "sandbox/test_enter"
            ),
            "kernel/descriptors": held("sandbox/test_enter", "sandbox/test_spawn", far=ESCAPE),
            "mechanisms/landlock": held(
                "sandbox/test_kernel", "sandbox/test_enter", "behaviour/protected/test_cells", far=ESCAPE
            ),
            "mechanisms/lifetime": held(
                "sandbox/mechanisms/test_lifetime", "sandbox/test_enter", "sandbox/test_spawn", far=ESCAPE
            ),
            "mechanisms/mounts": held(
                "sandbox/mechanisms/test_mounts", "sandbox/test_enter", "sandbox/test_prespawn", far=ESCAPE
            ),
            "mechanisms/namespaces": held(
                "sandbox/test_spawn", "sandbox/test_enter", "sandbox/mechanisms/test_loopback", far=ESCAPE
            ),
            "mechanisms/rlimits": held(
                "sandbox/mechanisms/test_rlimits",
                "sandbox/test_enter",
                "sandbox/mechanisms/test_cgroups",
                "sandbox/test_spawn",
                far=ESCAPE,
            ),
            "mechanisms/seccomp": held(
                "sandbox/mechanisms/test_seccomp", "sandbox/test_enter", "sandbox/test_explain", far=ESCAPE
            ),
        },
    ),
    **beside(
        "executor/toolcell",
        {
            "wire/budget": held("wire/test_budget", "behaviour/outcomes/test_budgets"),
            "sessions/written_places": held("sessions/test_written_places", "behaviour/files/test_links"),
            "rules/hosts": held("test_http_rules", "behaviour/settings/test_http", "backends/http/test_checks"),
            "rules/profile": held("test_profile", "config/test_narrowing"),
            "rules/policy": held("test_policy"),
            "rules/pages": held("test_web_rules", "backends/test_web"),
            "rules/channel": held("test_channel_policy", "sessions/test_channel_access"),
            "rules/credentials": held("test_credentials", "backends/http/test_client"),
            "rules/patterns": held("test_patterns", "test_policy", "approvals/test_store"),
            "rules/toml/complaints": held("config/test_narrowing", "config/test_policies"),
            "rules/limits": held("test_usage_limits"),
            **dict.fromkeys(
                ("rules/redaction", "rules/spellings"),
                held(
                    "journal/test_redaction",
                    "journal/test_redact",
                    "sessions/test_secrets",
                    "behaviour/calls/test_secrets",
                ),
            ),
            "runtime/retrying": held("test_retrying"),
            "runtime/tasks": held("behaviour/durable/test_results"),
            **dict.fromkeys(
                ("store/approvals/request", "store/approvals/table", "store/approvals/store", "store/approvals/ended"),
                held("approvals/test_store", "approvals/test_ended", "behaviour/durable/test_approvals"),
            ),
            **dict.fromkeys(
                ("store/database", "store/state"),
                held(
                    "state/test_database",
                    "state/test_signing",
                    "approvals/test_store",
                    "behaviour/durable/test_results",
                ),
            ),
            **dict.fromkeys(
                ("store/journal/entries", "store/journal/durable"), held("journal/test_chain", "journal/test_durable")
            ),
            "store/journal/log": held(
                "journal/test_log",
                "journal/test_segments",
                "journal/test_chain",
                "journal/test_durable",
                far=("tests/behaviour/durable/test_disk.py",),
            ),
            "store/journal/arguments": held("journal/test_redact"),
            "store/journal/reading": held(
                "journal/test_reading", "journal/test_durable", "journal/test_segments", "behaviour/durable/test_audit"
            ),
            "store/directory": held("state/test_directory"),
            "store/overlap": held("state/test_overlap"),
            "store/sessions": held("state/test_sessions", "behaviour/sessions/test_life"),
            "store/migrations": held("state/test_migrations", "state/test_version4"),
            "store/results": held("state/test_results", "behaviour/durable/test_results"),
        },
    ),
    **beside(
        "executor/toolcell/dispatch",
        {
            "permit": held(
                "dispatch/test_permit",
                "dispatch/test_decided",
                "behaviour/settings/test_policy",
                "test_policy",
                "behaviour/grants/test_matrix",
                "behaviour/calls/test_approval",
            ),
            "ask_approval": held(
                "dispatch/test_approve", "behaviour/calls/test_approval", "behaviour/durable/test_approvals"
            ),
            "admit": held("behaviour/pool/test_admission"),
            "route": held(
                "dispatch/test_workspace_identity", "behaviour/grants/test_matrix", "behaviour/calls/test_calls"
            ),
            "call_errors": held("dispatch/test_permit", "behaviour/grants/test_matrix", "behaviour/calls/test_calls"),
            "turnstile": held("dispatch/test_turnstile"),
            "ask_confirmation": held("behaviour/calls/test_confirmation"),
            "startup_checks": held("dispatch/test_guards", "behaviour/settings/test_policy"),
            "hooks": held("dispatch/test_hooks", "dispatch/test_repeats", "behaviour/sessions/test_closing"),
            "pipeline": held(
                "dispatch/test_hooks",
                "behaviour/calls/test_approval",
                "behaviour/calls/test_results",
                "behaviour/calls/test_calls",
                far=(
                    "tests/behaviour/tools/test_host_tools.py",
                    "tests/behaviour/tools/test_toolsets.py",
                    "tests/behaviour/protected/test_protected.py",
                    "tests/behaviour/sessions/test_closing.py",
                    "tests/behaviour/calls/test_output.py",
                    "tests/behaviour/pool/test_endings.py",
                ),
            ),
            "run_in_cell": held(
                "dispatch/test_hooks",
                "behaviour/calls/test_approval",
                "behaviour/calls/test_results",
                "behaviour/calls/test_calls",
                far=(
                    "tests/behaviour/tools/test_host_tools.py",
                    "tests/behaviour/tools/test_toolsets.py",
                    "tests/behaviour/protected/test_protected.py",
                    "tests/behaviour/sessions/test_closing.py",
                    "tests/behaviour/calls/test_output.py",
                    "tests/behaviour/pool/test_endings.py",
                ),
            ),
            "validate": held(
                "dispatch/test_validate",
                "behaviour/schemas/test_hostile",
                "behaviour/calls/test_calls",
                far=("tests/behaviour/schemas/test_suite.py",),
            ),
            "overflow": held("dispatch/test_overflow", "behaviour/calls/test_results", "behaviour/calls/test_output"),
            "protected_names": held("behaviour/protected/test_protected"),
        },
    ),
    **beside(
        "executor/toolcell/sessions",
        {
            "broker": held("sessions/test_broker", "behaviour/grants/test_three_levels"),
            "grants": held(
                "sessions/test_grants",
                "behaviour/grants/test_matrix",
                "behaviour/grants/test_three_levels",
                "config/test_narrowing",
                far=("tests/behaviour/hosts/test_interpreters.py",),
            ),
            "protection": held(
                "behaviour/protected/test_hung",
                "behaviour/protected/test_protected",
                "behaviour/calls/test_concurrency",
                far=("tests/behaviour/lifetime/test_untidy_end.py",),
            ),
            "tree": held("sessions/test_tree", "behaviour/sessions/test_sessions"),
            "web_access": held("sessions/test_web_access"),
            "shipping": held("sessions/test_shipping", "sessions/test_preloading", "behaviour/tools/test_by_value"),
            "channel_access": held("sessions/test_channel_access", "behaviour/channels/test_channels"),
            "idempotency": held("sessions/test_idempotency"),
        },
    ),
    **beside(
        "executor/toolcell/workplaces",
        {
            name: held(f"workplaces/test_{name}", "workplaces/test_cleanup", "behaviour/lifetime/test_untidy_end")
            for name in ("cleanup", "record", "runtime")
        },
    ),
    **beside(
        "executor/toolcell/wire",
        {
            "frames": held(
                "wire/test_frames", "wire/test_elements", "behaviour/wire/test_any_bytes", "tools/test_encode"
            ),
            "protocol": held("wire/test_protocol", "behaviour/wire/test_any_bytes"),
        },
    ),
    **beside(
        "executor/toolcell/mcp/client",
        {
            "server_source": held("mcp/client/test_code_paths"),
            "toolset": held(
                "mcp/client/test_configured",
                "config/test_servers",
                "mcp/client/test_register",
                "behaviour/mcp/test_url",
                "behaviour/mcp/test_servers",
                "behaviour/mcp/test_hostile",
            ),
            "server_tools": held(
                "mcp/client/test_register", "behaviour/mcp/test_servers", "behaviour/mcp/test_hostile"
            ),
            "inside/jsonrpc": held("mcp/client/inside/test_messages", "behaviour/mcp/test_hostile"),
            "inside/http": held("mcp/client/inside/test_http", "behaviour/mcp/test_url"),
            **{
                f"inside/{module}": held(
                    f"mcp/client/inside/test_{test}", "behaviour/mcp/test_hostile", "behaviour/mcp/test_servers"
                )
                for module, test in (("mcp_client", "client"), ("call_result", "results"), ("stdio", "stdio"))
            },
        },
    ),
    **beside(
        "executor/toolcell/pool",
        {
            "plan": held("pool/test_plan", "behaviour/calls/test_concurrency", "behaviour/pool/test_kept"),
            "fleet": held("pool/test_fleet", "behaviour/pool/test_failures"),
        },
    ),
    **beside(
        "executor/toolcell/pool/cell",
        {
            "state": held("pool/cell/test_state"),
            "channels": held("pool/cell/test_outbox", "behaviour/calls/test_calls", "behaviour/pool/test_failures"),
            "meter": held(
                "pool/cell/test_meter",
                "behaviour/outcomes/test_usage",
                "behaviour/pool/test_failures",
                "behaviour/outcomes/test_outcomes",
            ),
        },
    ),
    **beside(
        "executor/toolcell/backends",
        {
            "addresses": held("backends/test_addresses", "backends/egress/test_decision", "backends/test_web"),
            "body": held("backends/test_exchange", "backends/test_web"),
            "exchange": held("backends/test_exchange", "backends/test_web", "backends/http/test_client"),
            "web": held("backends/test_links", "backends/test_web"),
            "egress/decision": held("backends/egress/test_decision", "behaviour/network/test_proxy"),
            "egress/head": held(
                "backends/egress/test_head", "backends/egress/test_length", "behaviour/network/test_proxy"
            ),
            "egress/net": held("backends/egress/test_decision", "behaviour/network/test_proxy"),
            "egress/gateway": held("behaviour/network/test_proxy", "behaviour/network/test_programs"),
            "egress/connection": held("behaviour/network/test_proxy", "behaviour/network/test_programs"),
            "http/checks": held("backends/http/test_checks", "backends/http/test_client"),
            "http/client": held("backends/http/test_client", "behaviour/http/test_cells"),
        },
    ),
    **beside(
        "tools/toolcell_tools",
        {
            "encode": held("tools/test_encode", "tools/test_result"),
            "artifact": held("tools/test_content", "tools/test_result"),
            "workspace": held("tools/test_workspace", "tools/test_base"),
            "paths": held("tools/test_paths", "tools/test_workspace", "tools/test_base"),
            "options": held(
                "tools/test_rules", "tools/test_definition", "tools/test_options", "tools/test_declaration"
            ),
            "typed": held("tools/test_whole", "tools/test_typed", "tools/test_dynamic"),
        },
    ),
}
