"""The coding tools in cells: list, glob, grep and apply_patch, by a Main and by a Worker."""

import os
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from toolcell import ImageBlock, PermissionTier, Preview, Session, SessionKind, ToolContext, base_tools, coding_tools
from toolcell.testing import context

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
TOOLS = [*base_tools(), *coding_tools()]
BY_NAME = {tool.name: tool for tool in coding_tools()}
PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
PATCH = """*** Begin Patch
*** Update File: src/app.py
@@ def main():
-    print("hi")
+    print("hello")
*** Add File: notes/a.txt
+First line
*** Delete File: old.txt
*** Update File: src/util.py
*** Move to: src/helper.py
@@
-X = 1
+X = 2
*** End Patch
"""


@pytest.fixture
def project(workspace: Path) -> Path:
    for name, text in {
        "src/app.py": 'def main():\n    print("hi")\n',
        "src/util.py": "X = 1\n",
        "old.txt": "old\n",
        "build/out.js": "main\n",
        ".gitignore": "build/\n",
        "data.bin": "main\0",
    }.items():
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text(text)
    (workspace / "link").symlink_to("src/app.py")
    return workspace


async def output_of(session: Session, name: str, **arguments: Any) -> Any:
    result = await session.call(name, arguments)
    assert result.error is None, result.error
    return result.output


@pytest.mark.parametrize("kind", ["main", "worker"])
async def test_a_session_that_may_read_lists_finds_and_searches(main: Session, project: Path, kind: str) -> None:
    session = main if kind == "main" else await main.open_child(SessionKind.WORKER)
    listed = await output_of(session, "list", depth=2)
    assert [entry["path"] for entry in listed["entries"]] == [
        ".gitignore", "data.bin", "link", "old.txt", "src", "src/app.py", "src/util.py"
    ]  # fmt: skip
    assert listed["entries"][3] == {"path": "old.txt", "kind": "file", "size": 4}
    assert (await output_of(session, "list", path="build", ignored=True))["entries"][0]["path"] == "build/out.js"
    assert await output_of(session, "glob", pattern="*.{py,txt}") == {"paths": ["old.txt", "src/app.py", "src/util.py"]}
    found = await output_of(session, "grep", pattern=r"^def \w+", context=1)
    assert found["matches"] == [
        {"path": "src/app.py", "line": 1, "text": "def main():", "before": [], "after": ['    print("hi")']}
    ]
    everywhere = await output_of(session, "grep", pattern="main", show="files", ignored=True)
    assert everywhere["files"] == [{"path": "build/out.js", "lines": 1}, {"path": "src/app.py", "lines": 1}]


async def test_apply_patch_changes_all_files_or_none(main: Session, project: Path) -> None:
    misfit = await main.call("apply_patch", {"patch": PATCH.replace("X = 1", "X = 3")})
    assert misfit.error is not None and misfit.error.kind == "execution"
    assert "line 1 is 'X = 1', and the patch has 'X = 3'" in misfit.error.message
    assert "No file was changed." in misfit.error.message and (project / "old.txt").exists()
    output = await output_of(main, "apply_patch", patch=PATCH)
    assert output["changes"] == [
        {"path": "src/app.py", "action": "modified"},
        {"path": "notes/a.txt", "action": "created"},
        {"path": "old.txt", "action": "deleted"},
        {"path": "src/helper.py", "action": "created", "moved_from": "src/util.py"},
    ]
    assert (project / "src/app.py").read_text() == 'def main():\n    print("hello")\n'
    assert (project / "notes/a.txt").read_text() == "First line\n"
    assert (project / "src/helper.py").read_text() == "X = 2\n"
    assert not (project / "old.txt").exists() and not (project / "src/util.py").exists()


UPDATE = "*** Update File: old.txt\n@@\n-old\n+new\n"


@pytest.mark.parametrize(
    "changes",
    [
        UPDATE.replace("@@", "*** Move to: b.txt\n@@") + "*** Add File: b.txt\n+other\n",
        UPDATE + UPDATE.replace("old.txt", "./old.txt"),
        UPDATE + UPDATE.replace("old.txt", "alias"),
        UPDATE + "*** Delete File: ./old.txt\n",
        UPDATE + "*** Add File: old.txt/x\n+x\n",
        UPDATE + "*** Add File: n\n+x\n*** Add File: n/x\n+x\n",
    ],
)
async def test_a_patch_whose_changes_clash_changes_no_file(main: Session, project: Path, changes: str) -> None:
    (project / "alias").symlink_to("old.txt")
    result = await main.call("apply_patch", {"patch": f"*** Begin Patch\n{changes}*** End Patch"})
    assert result.error is not None and "No file was changed." in result.error.message
    assert (project / "old.txt").read_text() == "old\n"
    assert not (project / "b.txt").exists() and not (project / "n").exists()


async def test_a_patch_may_put_a_directory_in_the_place_of_a_file_that_it_deletes(main: Session, project: Path) -> None:
    patch = "*** Begin Patch\n*** Delete File: old.txt\n*** Add File: old.txt/x\n+x\n*** End Patch"
    await output_of(main, "apply_patch", patch=patch)
    assert (project / "old.txt/x").read_text() == "x\n"


async def test_a_name_that_is_not_unicode_does_not_hide_the_other_files(main: Session, project: Path) -> None:
    (project / os.fsdecode(b"bad\xff.txt")).write_text("old\n")
    listed = await output_of(main, "list")
    assert {"bad\\xff.txt", "old.txt"} <= {entry["path"] for entry in listed["entries"]}
    assert (await output_of(main, "glob", pattern="*.txt"))["paths"] == ["bad\\xff.txt", "old.txt"]
    found = await output_of(main, "grep", pattern="^old$")
    assert [match["path"] for match in found["matches"]] == ["bad\\xff.txt", "old.txt"]


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        (r"caf\w+", [1, 5]),
        ("na.ve", [1]),
        (r"\d+", [3]),
        ("(?i)привет", [2]),
        (r"^\w+$", [4]),
        (r"\u00e9\b", [1]),
        ("[а-я]+", [2]),
    ],
)
async def test_lines_in_any_script_and_encoding_are_found(
    main: Session, project: Path, pattern: str, lines: list[int]
) -> None:
    (project / "text").write_bytes("café naïve\r\nПРИВЕТ мир\r\n١٢٣ digits\r\n日本語\r\n".encode() + b"cafs \xe9")
    found = await output_of(main, "grep", pattern=pattern, path="./text")
    assert [(match["path"], match["line"]) for match in found["matches"]] == [("text", line) for line in lines]


async def test_a_worker_cannot_patch(main: Session, project: Path) -> None:
    worker = await main.open_child(SessionKind.WORKER)
    assert {"list", "glob", "grep"} <= {tool.name for tool in await worker.tools()}
    refused = await worker.call("apply_patch", {"patch": PATCH})
    assert refused.error is not None and refused.error.kind == "permission_denied"
    assert (project / "old.txt").exists()


async def test_paths_outside_of_the_workspace_and_wrong_patterns_are_refused(main: Session, project: Path) -> None:
    outside = [
        ("list", {"path": "/etc"}),
        ("glob", {"pattern": "*", "path": ".."}),
        ("grep", {"pattern": "x", "path": "/"}),
    ]
    for name, arguments in outside:
        result = await main.call(name, arguments)
        assert result.error is not None and "outside the workspace" in result.error.message, name
    for path in ("../x", "/etc/x"):
        patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
        result = await main.call("apply_patch", {"patch": patch})
        assert result.error is not None and "outside the workspace" in result.error.message
    wrong = await main.call("grep", {"pattern": "(", "path": "src"})
    assert wrong.error is not None and "is not a regular expression" in wrong.error.message


async def test_a_protected_name_stops_the_whole_patch(main: Session, project: Path) -> None:
    patch = PATCH.replace("notes/a.txt", ".git/hooks/pre-commit")
    result = await main.call("apply_patch", {"patch": patch})
    assert result.error is not None and result.error.kind == "permission_denied"
    assert (project / "src/app.py").read_text() == 'def main():\n    print("hi")\n'


async def test_many_matches_are_counted_and_cut(main: Session, project: Path) -> None:
    (project / "many.txt").write_text("needle\n" * 50 + "x" * 600 + "\n")
    found = await output_of(main, "grep", pattern="needle", limit=3)
    assert len(found["matches"]) == 3 and found["more"].startswith("47 more lines match")
    (line,) = (await output_of(main, "grep", pattern="x{600}"))["matches"]
    assert line["text"].endswith("[… 100 more characters …]")


async def test_read_shows_an_image(main: Session, project: Path) -> None:
    (project / "a.png").write_bytes(PNG)
    result = await main.call("read", {"path": "a.png"})
    assert result.output == {"path": "a.png", "media_type": "image/png", "bytes": len(PNG)}
    (block,) = result.content
    assert isinstance(block, ImageBlock) and block.to_bytes() == PNG
    (project / "large.png").write_bytes(PNG + bytes(4_000_000))
    large = await main.call("read", {"path": "large.png"})
    assert large.error is not None and "make a smaller copy" in large.error.message


async def test_an_image_that_a_model_provider_would_refuse_is_not_shown(main: Session, project: Path) -> None:
    (project / "bomb.png").write_bytes(PNG[:16] + (100_000).to_bytes(4) * 2 + PNG[24:])
    (project / "half.png").write_bytes(PNG[:40])
    for name, why in (("bomb.png", "has 100,000 x 100,000 pixels"), ("half.png", "is not whole")):
        result = await main.call("read", {"path": name})
        assert result.error is not None and why in result.error.message and not result.content


def preview_of(ctx: ToolContext, name: str, **arguments: Any) -> Preview:
    preview = BY_NAME[name].preview(ctx, arguments)
    assert preview is not None
    return preview


def test_each_tool_has_a_preview_annotations_an_output_schema_and_examples(project: Path) -> None:
    ctx = context("main", workspace=project)
    assert preview_of(ctx, "list", path="src", depth=2).summary == "List src, 2 levels deep"
    assert preview_of(ctx, "glob", pattern="*.py", path=".").summary == "Find *.py in ."
    assert preview_of(ctx, "grep", pattern="x", path=".", include="*.py").summary == "Search . for x, in files *.py"
    patched = preview_of(ctx, "apply_patch", patch=PATCH)
    assert patched.summary == "Change 4 files" and '+    print("hello")' in (patched.diff or "")
    assert "would fail" in preview_of(ctx, "apply_patch", patch="x").details
    for tool in coding_tools():
        declaration = tool.declaration
        assert declaration.annotations.title and declaration.output_schema is not None
        assert any("examples" in schema for schema in declaration.parameters_schema["properties"].values())
        changes = tool.name == "apply_patch"
        assert declaration.tier is (PermissionTier.WORKSPACE if changes else PermissionTier.READ_ONLY)
        assert declaration.annotations.destructive is changes


async def test_the_shell_is_bash_says_so_and_takes_commands_of_1_mib(main: Session, project: Path) -> None:
    (declared,) = (tool for tool in await main.tools() if tool.name == "shell")
    assert declared.parameters_schema["properties"]["command"]["description"] == "The command, for /bin/bash."
    before, after = "wc -c <<'E'\n", "\nE\necho ${BASH##*/}"
    command = before + "x" * (1_048_576 - len(before + after)) + after
    assert (await output_of(main, "shell", command=command))["stdout"].split()[1] == "bash"
    longer = await main.call("shell", {"command": f"{command} "})
    assert longer.error is not None and "has 1,048,577 bytes, and at most 1,048,576 can be run" in longer.error.message
    longest = await main.call("shell", {"command": "x" * 20_000_000})  # more than a call carries
    assert longest.error is not None and "has 20,000,0" in longest.error.message
    assert "holds at most " in longest.error.message and "write what is large to a file" in longest.error.message


async def test_a_repository_is_searched_as_git_grep_does(main: Session, project: Path) -> None:
    subprocess.run(["git", "init", "--quiet", project], check=True)
    lines = subprocess.run(
        ["git", "grep", "--untracked", "-n", "-I", "main"], cwd=project, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = await output_of(main, "grep", pattern="main")
    assert [f"{line['path']}:{line['line']}:{line['text']}" for line in found["matches"]] == sorted(lines)
