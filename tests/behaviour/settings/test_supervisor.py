"""Settings from a file, down to the kernel."""

import inspect
import time
from pathlib import Path

import anyio
import pytest
from tests.config.conftest import Places

from toolcell import (
    ApprovalRequest,
    Approved,
    LimitExceeded,
    PermissionDenied,
    Profile,
    SessionKind,
    Supervisor,
    Timeout,
    UsageError,
    base_tools,
    blocking,
    load_config,
    tool,
)
from toolcell.rules.toml.schema import SupervisorTable
from toolcell.supervisor import runtime_of

pytestmark = pytest.mark.anyio
SMALL = "[profiles.main.limits]\nmemory_bytes = 134217728\n[profiles.worker.limits]\nmemory_bytes = 134217728\n"


@tool
def sleep(seconds: float) -> str:
    """Sleep."""

    time.sleep(seconds)
    return "slept"


@tool(uses={"read"})
def look(path: str, name: str) -> list[str | None]:
    """Return the first line of a file, and an environment variable."""
    import os

    with open(path) as file:
        return [file.readline(), os.environ.get(name)]


@tool
def fill(size: int) -> int:
    """Write a file of this size."""
    with open("/tmp/file", "wb") as file:
        return file.write(b"x" * size)


async def test_a_tiny_limit_of_a_file_ends_a_real_call(places: Places, workspace: Path) -> None:
    places.user(SMALL)
    places.project("[profiles.worker.limits]\nwall_s = 0.3\nfile_bytes = 4096")
    async with Supervisor([sleep, fill], config=places.load()) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        late = await session.call("sleep", {"seconds": 3600})
        assert isinstance(late.error, Timeout)
        large = await session.call("fill", {"size": 8192})
        assert isinstance(large.error, LimitExceeded)
        assert (large.error.resource, large.error.limit) == ("file_size", 4096)


async def test_paths_and_variables_of_a_file_are_there_in_a_real_cell(
    places: Places, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "note").write_text("hello\n")
    places.explicit(SMALL + '[profiles.worker]\nreadable = ["data"]\nenv = { TZ = "UTC" }')
    async with Supervisor([look], config=places.load()) as supervisor:
        session = await supervisor.open_session("worker", workspace=workspace)
        found = await session.call("look", {"path": str(tmp_path / "data/note"), "name": "TZ"})
        assert found.unwrap() == ["hello\n", "UTC"]


async def test_a_grant_that_a_file_takes_away_is_gone(places: Places, workspace: Path) -> None:
    places.project("[profiles.main]\ngrants = ['read']")
    async with Supervisor(base_tools(), config=places.load()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert [declaration.name for declaration in await session.tools()] == ["read"]


async def test_what_is_given_to_the_supervisor_replaces_what_its_config_says(places: Places, workspace: Path) -> None:
    places.explicit(
        SMALL + "[profiles.branch.limits]\nwall_s = 3\n[supervisor]\nmax_cells = 1\nstandby = 0\n"
        "allow_missing = ['landlock_scope']\napproval_timeout_s = 2.5\nmodel_bytes = 500\nquarantine = 'kept'"
    )
    config = places.load()
    mine = Profile.for_kind("worker").replace(limits=config.profiles[SessionKind.WORKER].limits.replace(wall_s=7))
    supervisor = Supervisor(
        config=config, profiles={SessionKind.WORKER: mine}, max_cells=5, standby=1, allow_missing=[]
    )
    settings = runtime_of(supervisor).settings
    assert settings.profiles[SessionKind.WORKER] == mine
    assert settings.profiles[SessionKind.BRANCH].limits.wall_s == 3
    assert (settings.max_cells, settings.standby, settings.allow_missing) == (5, True, frozenset())
    settings = runtime_of(Supervisor(config=config)).settings
    assert (settings.max_cells, settings.standby) == (1, False)
    assert settings.allow_missing == {"landlock_scope"}
    assert (settings.approval_timeout_s, settings.model_bytes) == (2.5, 500)
    settings = runtime_of(Supervisor(config=config, approval_timeout_s=1, model_bytes=7)).settings
    assert (settings.approval_timeout_s, settings.model_bytes) == (1, 7)
    for wrong in ({"approval_timeout_s": 0}, {"approval_timeout_s": float("inf")}, {"model_bytes": 0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Supervisor(**wrong)
    with pytest.raises(UsageError, match="standby"):
        Supervisor(config=config, standby=2)


async def test_how_much_a_model_is_shown_and_how_long_somebody_is_asked_may_come_from_a_file(
    places: Places, workspace: Path
) -> None:
    class Nobody:
        async def approve(self, request: ApprovalRequest) -> Approved:
            await anyio.sleep_forever()
            return Approved()

    places.user(SMALL + "[supervisor]\nmodel_bytes = 500\napproval_timeout_s = 0.2")
    deleting = tool(sleep.fn, name="delete", requires_approval=True)
    async with Supervisor([look, deleting], config=places.load(), approver=Nobody()) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        (workspace / "long").write_text("x" * 600)
        found = await session.call("look", {"path": str(workspace / "long"), "name": "TZ"})
        assert found.artifacts and found.artifacts[0].kind == "output"
        assert isinstance((await session.call("delete", {"seconds": 0})).error, PermissionDenied)


def test_the_blocking_supervisor_takes_a_config_too(places: Places, workspace: Path) -> None:
    places.user(SMALL + "wall_s = 0.3")
    with blocking.Supervisor([sleep], config=load_config()) as supervisor:
        session = supervisor.open_session("worker", workspace=workspace)
        assert isinstance(session.call("sleep", {"seconds": 20}).error, Timeout)


def test_all_of_a_supervisor_but_objects_and_functions_can_stand_in_a_file() -> None:
    taken = set(inspect.signature(Supervisor).parameters)
    objects = {"tools", "toolsets", "hooks", "policy", "approver", "journal", "resolve", "telemetry", "cluster"}
    assert taken - objects == {*SupervisorTable.model_fields, "profiles", "config", "http"} - {
        "credentials"
    }  # which are those of `http`
