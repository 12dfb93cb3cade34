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


MODULES: dict[str, Held] = {
    **beside(
        "sandbox/toolcell_sandbox",
        {
            "protected": held("sandbox/test_protected", "sandbox/test_audit", "sandbox/test_protected_cells"),
            **dict.fromkeys(
                ("audit", "look", "seen", "targets", "quarantine", "walker", "harmless", "drafts"),
                held(
                    "sandbox/test_audit",
                    "sandbox/test_gitstate",
                    "sandbox/test_hostile_trees",
                    "structure/test_protected",
                    "sandbox/test_protected_cells",
                ),
            ),
            "repositories": held("sandbox/test_audit", "structure/test_protected"),
            "gitstate": held("sandbox/test_gitstate"),
            "gitconfig": held("sandbox/test_gitconfig"),
            "profile": held("sandbox/test_profile", "config/test_narrowing", "sandbox/test_mounts", far=ESCAPE),
            "limits": held("sandbox/test_profile", "config/test_narrowing", "config/test_errors"),
            "network": held("network/test_policy", "network/test_rules", "sandbox/test_profile", "config/test_errors"),
            "view": held("sandbox/test_mounts", "sandbox/test_protected_cells", "sandbox/test_enter", far=ESCAPE),
            "enter": held(
                "sandbox/test_enter", "sandbox/test_prespawn", "sandbox/test_network", "sandbox/test_spawn", far=ESCAPE
            ),
            "http_rules": held("sandbox/test_http_rules", "config/test_http", "http/test_checks"),
            "mechanisms/bpf": held("sandbox/test_seccomp", "sandbox/test_explain", "sandbox/test_enter", far=ESCAPE),
            "mechanisms/capabilities": held("sandbox/test_enter", "sandbox/test_kernel", far=ESCAPE),
            "mechanisms/cgroup_tree": held("sandbox/test_cgroup_tree", "sandbox/test_cgroups"),
            "mechanisms/cgroups": held("sandbox/test_cgroups", "sandbox/test_cgroup_tree", "sandbox/test_enter"),
            "mechanisms/fds": held("sandbox/test_enter", "sandbox/test_spawn", far=ESCAPE),
            "mechanisms/landlock": held(
                "sandbox/test_kernel", "sandbox/test_enter", "sandbox/test_protected_cells", far=ESCAPE
            ),
            "mechanisms/lifetime": held("sandbox/test_enter", "sandbox/test_spawn", far=ESCAPE),
            "mechanisms/loopback": held("sandbox/test_network", "network/test_confinement", far=ESCAPE),
            "mechanisms/mounts": held("sandbox/test_mounts", "sandbox/test_enter", "sandbox/test_prespawn", far=ESCAPE),
            "mechanisms/namespaces": held("sandbox/test_spawn", "sandbox/test_enter", far=ESCAPE),
            "mechanisms/rlimits": held("sandbox/test_enter", "sandbox/test_cgroups", "sandbox/test_spawn", far=ESCAPE),
            "mechanisms/seccomp": held(
                "sandbox/test_seccomp", "sandbox/test_enter", "sandbox/test_explain", far=ESCAPE
            ),
        },
    ),
    **beside(
        "executor/toolcell/dispatch",
        {
            "permit": held("dispatch/test_policy", "structure/test_matrix", "dispatch/test_approval"),
            "policy": held("dispatch/test_policy"),
            "approve": held("dispatch/test_approval"),
            "hooks": held("dispatch/test_hooks", "structure/test_closing"),
            "pipeline": held(
                "dispatch/test_hooks",
                "dispatch/test_approval",
                "structure/test_results",
                "structure/test_calls",
                far=(
                    "tests/dispatch/test_host_tools.py",
                    "tests/dispatch/test_toolsets.py",
                    "tests/structure/test_protected.py",
                    "tests/structure/test_closing.py",
                    "tests/structure/test_output.py",
                    "tests/pool/test_endings.py",
                ),
            ),
            "execute": held(
                "dispatch/test_hooks",
                "dispatch/test_approval",
                "structure/test_results",
                "structure/test_calls",
                far=(
                    "tests/dispatch/test_host_tools.py",
                    "tests/dispatch/test_toolsets.py",
                    "tests/structure/test_protected.py",
                    "tests/structure/test_closing.py",
                    "tests/structure/test_output.py",
                    "tests/pool/test_endings.py",
                ),
            ),
            "validate": held(
                "schemas/test_validate",
                "schemas/test_hostile",
                "structure/test_calls",
                far=("tests/schemas/test_suite.py",),
            ),
            "overflow": held("structure/test_results", "structure/test_output"),
            "audit": held("structure/test_protected"),
        },
    ),
    **beside(
        "executor/toolcell/sessions",
        {
            "grants": held("structure/test_grants", "structure/test_matrix"),
            "broker": held("sessions/test_broker", "structure/test_three_levels"),
            "policy": held(
                "structure/test_grants",
                "structure/test_matrix",
                "structure/test_three_levels",
                "config/test_narrowing",
                far=("tests/hosts/test_interpreters.py",),
            ),
            "protection": held(
                "structure/test_protected",
                "structure/test_concurrency",
                far=("tests/workplaces/test_untidy_end.py",),
            ),
            "tree": held("structure/test_sessions"),
            "idempotency": held("structure/test_idempotency"),
        },
    ),
    **beside(
        "executor/toolcell/workplaces",
        dict.fromkeys(("cleanup", "record", "runtime"), held("workplaces/test_untidy_end")),
    ),
    **beside(
        "executor/toolcell/wire",
        {
            "frames": held("wire/test_frames", "wire/test_fuzz", "tools/test_encode"),
            "protocol": held("wire/test_protocol", "wire/test_fuzz"),
            "elements": held("wire/test_frames", "wire/test_fuzz"),
        },
    ),
    **beside(
        "executor/toolcell/pool",
        {
            "plan": held("pool/test_plan", "structure/test_concurrency", "pool/test_kept"),
            "budget": held("pool/test_budget", "outcomes/test_budgets"),
            "recovery": held("pool/test_recovery"),
            "outbox": held("pool/test_parts", "structure/test_calls", "pool/test_failures"),
        },
    ),
    **beside(
        "executor/toolcell/pool/cell",
        {
            "state": held("pool/cell/test_state"),
            "evidence": held(
                "pool/test_parts", "supervisor/test_usage", "pool/test_failures", "outcomes/test_outcomes"
            ),
        },
    ),
    **beside(
        "executor/toolcell/backends",
        {
            "guard": held("backends/test_guard", "network/test_rules", "backends/test_web"),
            "body": held("backends/test_exchange", "backends/test_web"),
            "exchange": held("backends/test_exchange", "backends/test_web", "http/test_client"),
            "pinned": held("backends/test_exchange", "backends/test_web"),
            "egress/rules": held("network/test_rules", "network/test_proxy"),
            "egress/head": held("network/test_head", "network/test_proxy"),
            "egress/body": held("network/test_head", "network/test_proxy"),
            "egress/net": held("network/test_rules", "network/test_proxy"),
            "egress/gateway": held("network/test_proxy", "network/test_programs"),
            "egress/connection": held("network/test_proxy", "network/test_programs"),
            "http/rules": held("http/test_checks", "http/test_client"),
            "http/redaction": held("http/test_client", "http/test_credentials"),
            "http/client": held("http/test_client", "http/test_cells"),
        },
    ),
    **beside(
        "tools/toolcell_tools",
        {
            "encode": held("tools/test_encode", "tools/test_result"),
            "workspace": held("tools/test_workspace", "tools/test_base_tools"),
            "paths": held("tools/test_workspace", "tools/test_base_tools"),
            "rules": held("tools/test_definition", "tools/test_options", "tools/test_declaration"),
            "whole": held("tools/test_typed", "tools/test_dynamic"),
        },
    ),
}
