"""LangChain's public suite for sandboxes of deepagents, on a session, without await and from a loop of each test."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from deepagents.backends.protocol import SandboxBackendProtocol

from toolcell import Supervisor
from toolcell.adapters.deepagents import SessionSandbox, workspace_tools

with warnings.catch_warnings():
    warnings.simplefilter("ignore", pytest.PytestUnknownMarkWarning)  # of its suite for chat models
    from langchain_tests.integration_tests import SandboxIntegrationTests

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Class-scoped fixtures defined as instance methods"),
]
BEHIND = {
    "test_write_existing_file_fails": "deepagents 0.7 replaces a file that exists",
    **dict.fromkeys(
        (
            "test_glob",
            "test_glob_basic_pattern",
            "test_glob_with_directories",
            "test_glob_hidden_files_explicitly",
            "test_glob_with_character_class",
            "test_glob_with_question_mark",
        ),
        "glob of deepagents 0.7 returns absolute paths, of files",
    ),
}
"""The tests of langchain-tests 1.1 that deepagents' own BaseSandbox contradicts."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace")


class TestSessionSandbox(SandboxIntegrationTests):
    root = ""

    @property
    def sandbox_root_dir(self) -> str:
        return self.root

    @pytest.fixture(scope="class")
    def sandbox(self, nothing_is_left_of_the_module: None, workspace: Path) -> Iterator[SandboxBackendProtocol]:
        type(self).root = f"{workspace}/operations"
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(Supervisor(workspace_tools())) as supervisor,
        ):
            yield SessionSandbox(portal.call(lambda: supervisor.open_session("main", workspace=workspace)))

    @pytest.fixture(autouse=True)
    def known_to_be_behind(self, request: pytest.FixtureRequest) -> None:
        name = request.node.name
        if name in BEHIND:
            request.applymarker(pytest.mark.xfail(reason=BEHIND[name], strict=True))
