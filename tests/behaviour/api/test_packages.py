"""The package's face: lazy, complete, and free of anything of ours."""

import subprocess
import sys
from importlib import metadata

import pytest

import toolcell
import toolcell_tools
from toolcell_tools import options, toolsets


def test_every_public_name_is_there() -> None:
    for name in toolcell_tools.__all__:
        assert getattr(toolcell_tools, name) is not None
        assert name in dir(toolcell_tools)


def test_every_public_name_of_the_runtime_is_there() -> None:
    for name in toolcell.__all__:
        assert getattr(toolcell, name) is getattr(toolcell_tools, name, getattr(toolcell, name))


def test_the_runtime_has_every_name_for_authors_of_tools_and_toolsets() -> None:
    assert set(toolcell_tools.__all__) <= set(toolcell.__all__)
    assert set(toolsets.__all__) - {"resolve"} <= set(toolcell_tools.__all__)
    assert set(options.__all__) <= set(toolcell_tools.__all__)


def test_importing_the_package_imports_nothing_else() -> None:
    code = (
        "import sys; before = {*sys.modules}; import toolcell_tools; new = {*sys.modules} - before;"
        "sys.exit(str(new) if {'typing', 'pydantic', 'toolcell_tools.result'} & new else 0)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'toolcell_tools' has no attribute 'nothing'"):
        toolcell_tools.nothing  # noqa: B018


def test_the_version_is_the_distributions() -> None:
    assert toolcell.__version__ == metadata.version("toolcell")
