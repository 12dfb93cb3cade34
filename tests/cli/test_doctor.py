"""`toolcell doctor`, on this machine and in a place where nearly everything is refused: one of our own cells."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcell import SessionKind, Supervisor, ToolResult, UsageError, WebhookChannel, base_tools
from toolcell.cli.report_lines import IDENTITY, PURPOSE, promise_lines
from toolcell.mcp import mcp_toolset
from toolcell_sandbox.promises import PROMISES, PROTECTED_NAMES, VERDICTS
from toolcell_sandbox.report import NAMES, Mechanism, SandboxReport

from .conftest import ALLOWED, Run


def test_every_mechanism_and_identity_is_explained() -> None:
    assert PURPOSE.keys() == set(NAMES)
    assert IDENTITY.keys() == {"root", "rootless", "userns-root"}


def test_it_names_every_mechanism_and_says_that_all_is_well(once: Run, anyone: list[str]) -> None:
    done = once("doctor", "--verbose", before=anyone)
    found = json.loads(once("doctor", "--json", before=anyone).stdout)
    for mechanism in found["mechanisms"]:
        assert f"{mechanism['state']:<11}  {mechanism['name']} " in done.stdout
    assert ("Everything that toolcell requires is here." in done.stdout) == found["ok"]
    assert done.returncode == (0 if found["ok"] else 1)
    assert done.stderr == ""


def test_by_default_it_says_on_one_screen_what_there_is(once: Run, anyone: list[str]) -> None:
    done = once("doctor", before=anyone)
    found = json.loads(once("doctor", "--json", before=anyone).stdout)
    said = done.stdout.splitlines()
    assert len(said) <= 20
    on = [mechanism for mechanism in found["mechanisms"] if mechanism["state"] == "on"]
    assert f"{len(on)} of {len(found['mechanisms'])} mechanisms are on" in said
    verdicts = [row["verdict"] for row in (*found["promises"], found["protected_names"])]
    assert f"{verdicts.count('two layers')} of {len(verdicts)} promises rest on two layers" in said
    assert any(found["kernel"] in line and found["python"] in line for line in said)
    assert f"Running as {IDENTITY[found['identity']]}" in said
    assert "  worker: writes its own /tmp; runs no program; no network; 30 s, 256 MiB, 16 processes" in said
    assert said[-1] == "More: toolcell doctor --verbose, --profile KIND, --json"
    assert len(once("doctor", "-v", before=anyone).stdout.splitlines()) > 100


def test_as_json_it_is_the_report_and_the_machine(once: Run, anyone: list[str]) -> None:
    done = once("doctor", "--json", before=anyone)
    found: dict[str, Any] = json.loads(done.stdout)
    missing = {mechanism["name"] for mechanism in found["mechanisms"] if mechanism["state"] == "missing"}
    assert missing <= set(ALLOWED)
    assert found["ok"] == (not missing)
    assert found["identity"] in IDENTITY
    assert {"kernel", "machine", "python"} <= found.keys()
    assert {mechanism["name"] for mechanism in found["mechanisms"]} <= set(NAMES)


IN_A_CELL = ("doctor", "doctor --verbose", "doctor --json > report.json", "demo")
"""The report goes to a file, because `shell` shortens a long output."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("in-a-cell")


@pytest.fixture(scope="module")
def in_a_cell(place: Path) -> dict[str, ToolResult]:
    """The results of the commands `IN_A_CELL` in a cell of ours with this workspace."""

    async def run() -> dict[str, ToolResult]:
        python = shlex.quote(os.path.abspath(sys.executable))
        async with Supervisor(base_tools(), allow_missing=ALLOWED) as supervisor:
            session = await supervisor.open_session(SessionKind.MAIN, workspace=place)
            return {
                command: await session.call("shell", {"command": f"{python} -I -m toolcell.cli {command}"})
                for command in IN_A_CELL
            }

    return anyio.run(run)


def test_what_is_missing_comes_with_its_reason_its_cure_and_status_1(in_a_cell: dict[str, ToolResult]) -> None:
    short = in_a_cell["doctor"].output["stdout"]
    assert short.startswith("Missing: ")
    first = short.partition("\n\n")[0]
    assert "  cure: " in first and "A supervisor refuses to start here." in first and "mount_namespace" in first
    assert "rest on two layers\n  1 write outside what its profile makes writable: " in short
    result = in_a_cell["doctor --verbose"]
    assert result.output["exit_code"] == 1, result
    said = result.output["stdout"]
    assert "missing      mount_namespace" in said
    assert "cure: " in said
    assert "A supervisor refuses to start here." in said
    assert "allow_missing=" in said
    assert "write outside what its profile makes writable: " in said
    assert "off  read-only mounts in a root of its own (lacks mount_namespace" in said


def test_where_one_mechanism_takes_others_with_it_its_cure_is_printed_once(
    in_a_cell: dict[str, ToolResult], place: Path
) -> None:
    for options in ("", " --verbose"):
        said = in_a_cell[f"doctor{options}"].output["stdout"]
        first, _, rest = said.partition("\n\n")
        assert first.count("Missing: ") == first.count("  cure: ") == 1, said
        assert "allow_missing={'user_namespace', 'mount_namespace', 'pid_namespace', " in first
        assert "Without them code in a cell can outlive its call (promise 5)" in first
        cure = first.partition("  cure: ")[2].partition("\n")[0]
        assert rest.count(cure) == bool(options), said
    report = json.loads((place / "report.json").read_text())
    (proc,) = (row for row in report["mechanisms"] if row["name"] == "proc")
    assert proc["cure"] == cure


@pytest.mark.parametrize("page", ["docs/security.md", "SECURITY.md"])
def test_the_promises_are_those_of_the_documents(page: str) -> None:
    text = (Path(__file__).parent.parent.parent / page).read_text()
    for number, promise in enumerate(PROMISES, 1):
        assert f"\n{number}. {promise.text}" in text


def test_every_layer_rests_on_mechanisms_that_exist() -> None:
    for promise in PROMISES:
        for layer in promise.layers:
            assert frozenset().union(*layer.alternatives) <= set(NAMES)


def test_where_everything_is_on_each_promise_has_two_layers_and_with_nothing_only_the_supervisor_s_own() -> None:
    whole = SandboxReport(tuple(Mechanism(name, "on") for name in NAMES), "root")
    assert {promise.verdict(whole.on) for promise in PROMISES} == {"two layers"}
    nothing = whole.changed(*(Mechanism(name, "missing") for name in NAMES))
    assert [VERDICTS.index(promise.verdict(nothing.on)) for promise in PROMISES] == [0, 0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("missing", "verdicts"),
    [
        ({"landlock"}, [1, 1, 2, 1, 2, 2, 2]),
        ({"landlock_scope"}, [2, 2, 2, 1, 2, 2, 2]),
        ({"mount_setattr"}, [1, 1, 2, 2, 2, 2, 2]),
        ({"mount_setattr", "landlock"}, [0, 0, 2, 1, 2, 1, 2]),
        ({"seccomp"}, [2, 2, 1, 1, 2, 1, 2]),
        ({"pid_namespace"}, [2, 2, 2, 1, 0, 2, 2]),
        ({"net_namespace", "seccomp"}, [2, 2, 0, 1, 2, 1, 2]),
        ({"cgroup"}, [2, 2, 2, 2, 2, 2, 1]),
        ({"uts_namespace", "proc"}, [2, 2, 2, 2, 2, 2, 2]),
    ],
)
def test_what_is_missing_takes_its_layer_from_its_promises(missing: set[str], verdicts: list[int]) -> None:
    whole = SandboxReport(tuple(Mechanism(name, "on") for name in NAMES), "root")
    report = whole.changed(*(Mechanism(name, "substituted") for name in missing))
    assert [VERDICTS.index(promise.verdict(report.on)) for promise in PROMISES] == verdicts
    for promise in PROMISES:
        for layer in promise.layers:
            assert bool(layer.lacks(report.on)) == (not layer.is_on(report.on))
            assert set(layer.lacks(report.on)) <= missing


def test_each_promise_is_told_with_both_layers_here(once: Run, anyone: list[str]) -> None:
    said = once("doctor", "--verbose", before=anyone).stdout
    found = json.loads(once("doctor", "--json", before=anyone).stdout)
    for number, (promise, row) in enumerate(zip(PROMISES, found["promises"], strict=True), 1):
        assert f"  {number} {promise.text}: {row['verdict']}\n" in said
        assert all(f"      {'on ' if layer['on'] else 'off'}  {layer['text']}" in said for layer in row["layers"])


def test_it_explains_the_profiles_that_the_settings_give(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    presets = cli("doctor", "--verbose").stdout
    assert "Settings: the presets; there is no toolcell.toml" in presets
    assert "of a main or branch session" in presets
    assert "of a worker session" in presets
    (tmp_path / "toolcell.toml").write_text("profiles.worker.limits.wall_s = 7\nprofiles.main.limits.cpu_s = 6")
    more = tmp_path / "more.toml"
    more.write_text("[profiles.branch]\nenv = { TOKEN = 'sesame' }\nnetwork.kind = 'host'")
    short = cli("doctor", "--config", str(more)).stdout
    assert "  branch: writes the workspace, its own /tmp; runs programs; the host's network; 30 s, " in short
    assert "  worker: writes its own /tmp; runs no program; no network; 7 s, " in short
    done = cli("doctor", "--verbose", "--config", str(more))
    assert "Settings: toolcell.toml, " in done.stdout
    assert "of a main session" in done.stdout
    assert "  6 s  CPU time" in done.stdout
    assert "  7 s  wall time" in done.stdout
    assert "TOKEN (set)" in done.stdout
    assert "promise 3 is not kept." in done.stdout
    worker = cli("doctor", "--config", str(more), "--profile", "worker")
    assert "of a worker session" in worker.stdout and "mechanisms" not in worker.stdout
    assert "main" not in worker.stdout.partition("Settings:")[2].replace("domain", "")
    found = json.loads(cli("doctor", "--json", "--config", str(more), "--profile", "branch").stdout)
    assert found["profiles"].keys() == {"branch"}
    assert found["profiles"]["branch"]["env"] == ["TOKEN"]
    assert found["profiles"]["branch"]["limits"]["wall_s"] == 30
    assert found["settings"] == ["toolcell.toml", str(more)]
    assert "sesame" not in done.stdout + json.dumps(found)


def test_it_says_which_requests_are_made_and_where_their_credentials_are_and_shows_none(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key").write_text("sesame-open")
    settings = tmp_path / "settings.toml"
    settings.write_text(
        """
        [profiles.main]
        http = ["GET,POST api.example.com/v1"]
        [supervisor.credentials]
        "api.example.com" = { value_file = "key", prefix = "Bearer " }
        "other.example.com" = { header = "X-Key", value_env = "TOOLCELL_TEST_NO_SUCH_KEY" }
        """
    )
    short = cli("doctor", "--config", str(settings)).stdout.splitlines()
    assert short[0].startswith("Requests to other.example.com would carry X-Key, from the environment variable ")
    assert " is not set. Set it" in short[0]
    assert "  requests to api.example.com carry Authorization" in short
    said = cli("doctor", "--verbose", "--config", str(settings)).stdout
    assert "requests     GET POST https://api.example.com/v1 and below\n" in said
    assert "requests     none: no host is listed\n" in said
    assert f"\nRequests to api.example.com carry Authorization, from the file {tmp_path}/key\n" in said
    missing = "X-Key, from the environment variable TOOLCELL_TEST_NO_SUCH_KEY"
    assert f"Requests to other.example.com carry {missing}: the environment variable" in said and "is not set" in said
    found = json.loads(cli("doctor", "--json", "--config", str(settings)).stdout)
    assert found["profiles"]["main"]["http"] == ["GET,POST https://api.example.com/v1"]
    assert found["credentials"]["api.example.com"] == [f"Authorization, from the file {tmp_path}/key"]
    assert "sesame" not in said + json.dumps(found)


@pytest.mark.parametrize("account", ["", "ann:sesame-of-ann@"])
def test_no_diagnosis_shows_more_of_the_url_of_an_mcp_server_than_its_origin(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, account: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOSTED_KEY", "sesame-4f2c9a1e5d7b")
    monkeypatch.chdir(tmp_path)
    url = f"http://{account}127.0.0.1:9/s/${{HOSTED_KEY}}/mcp?key=sesame-in-query"
    settings = tmp_path / "settings.toml"
    settings.write_text(f"mcpServers.hosted.url = {url!r}")
    for command in ("doctor", "doctor --verbose", "doctor --json", "tools", "tools --json"):
        done = cli(*command.split(), "--config", str(settings))
        said = done.stdout + done.stderr
        assert "sesame" not in said, command
        assert ("hosted" in said and "http://127.0.0.1:9" in said) == command.startswith("doctor"), command


def test_no_channel_and_no_toolset_shows_more_of_its_url_than_its_origin() -> None:
    url = "https://hooks.example.org/services/sesame-4f2c9a1e5d7b?key=sesame-in-query"
    assert repr(WebhookChannel(url)) == "<WebhookChannel https://hooks.example.org>"
    assert repr(mcp_toolset(name="hosted", url=url)) == "<McpToolset hosted: https://hooks.example.org>"
    for wrong in ("https://a:sesame-4f2c9a1e5d7b@[::1", "https://a.example.org:sesame-4f2c9a1e5d7b/", url + "/%2F*{}"):
        try:
            shown = repr(mcp_toolset(name="hosted", url=wrong))
        except UsageError as error:
            shown = str(error)
        assert "sesame" not in shown and "hosted" in shown


def test_it_shows_the_policy_with_the_names_that_denials_have(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    assert "  policy.elevated: ask\n" in cli("doctor", "--verbose").stdout
    assert "policy" not in cli("doctor").stdout
    (tmp_path / "toolcell.toml").write_text('[policy.tools]\nshell = "deny"')
    mine = tmp_path / "mine.toml"
    mine.write_text(
        '[policy]\nsystem = "ask"\n[policy.kinds.worker.tools]\nread = "ask"\n'
        '[[policy.rules]]\ndecision = "allow"\ntool = "shell"\narguments = { command = "ls *" }\nname = "look"\n'
    )
    short = cli("doctor", "--config", str(mine)).stdout.splitlines()
    assert "  policy.system: ask" in short and "  policy.elevated: ask" not in short
    assert "  policy.rules[0] 'look': allow, tool shell, command 'ls *'" in short
    assert "  policy.kinds.worker.tools.read: ask" in short
    assert "  project policy.tools.shell: deny" in short
    full = cli("doctor", "--verbose", "--config", str(mine)).stdout
    assert f"  policy.system: ask  ({mine})\n" in full and "  policy.elevated: ask\n" in full
    assert "  project policy.tools.shell: deny  (toolcell.toml)\n" in full
    found = json.loads(cli("doctor", "--json", "--config", str(mine)).stdout)["policy"]
    rule = {"rule": "policy.rules[0] 'look'", "decision": "allow", "file": str(mine)}
    assert {**rule, "tool": "shell", "arguments": {"command": "ls *"}} in found
    assert {"rule": "project policy.tools.shell", "decision": "deny", "file": "toolcell.toml"} in found


def test_wrong_settings_are_told_first_with_status_2(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("\nsupervisor.standy = 1")
    for form in ([], ["--json"]):
        done = cli("doctor", "--config", str(wrong), *form)
        assert done.returncode == 2
        assert done.stderr.endswith(f"{wrong}:2: supervisor.standy: unknown. Did you mean standby?\n")
        assert ("seccomp" if form else "mechanisms are on") in done.stdout
        assert "Traceback" not in done.stderr
    both = subprocess.run(
        [sys.executable, "-I", "-m", "toolcell.cli", "doctor", "--config", str(wrong)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert both.stdout.startswith(f"The settings are wrong:\n{wrong}:2: ")


def test_a_demo_that_cannot_run_says_why_and_where_to_look(in_a_cell: dict[str, ToolResult]) -> None:
    result = in_a_cell["demo"]
    assert result.output["exit_code"] == 1, result
    assert "The demo cannot run here: The sandbox mechanism" in result.output["stdout"]
    assert "`toolcell doctor`" in result.output["stdout"]
    shown = result.output["stdout"].split()
    options = shown[shown.index("--allow-missing") :]
    assert options[::2] == ["--allow-missing"] * (len(options) // 2) and "pid_namespace" in options[1::2], options
    assert "Traceback" not in result.output["stderr"]


def test_it_says_what_protected_names_rest_on() -> None:
    whole = SandboxReport(tuple(Mechanism(name, "on") for name in NAMES), "root")
    assert PROTECTED_NAMES.verdict(whole.on) == "two layers"
    bare = whole.changed(Mechanism("mount_namespace", "missing"))
    assert PROTECTED_NAMES.verdict(bare.on) == "one layer only"
    assert any(
        "off  read-only mounts over those that are there (lacks mount_namespace)" in line
        for line in promise_lines(bare)
    )
