"""What cells see of /etc: the directories of settings to which programs link, if everyone may read all of them."""

import os
from pathlib import Path

import pytest

from toolcell_sandbox.etc import linked_settings


def _settings(etc: Path, name: str) -> Path:
    (etc / name / "sub").mkdir(parents=True)
    (etc / name / "sub/x.conf").write_text("x")
    (etc / name).chmod(0o755)
    return etc / name


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    """An /usr/lib and an /etc, with a link from the one to each directory of the other."""
    programs, etc = tmp_path / "usr/lib", tmp_path / "etc"
    for name in ("java", "groff", "partly", "closed", "hidden", "odd", "ssl", "deep", "doc"):
        _settings(etc, name)
        (programs / name / "conf").mkdir(parents=True)
        (programs / name / "conf/x.conf").symlink_to(etc / name / "sub/x.conf")
    (etc / "unlinked").mkdir()
    (etc / "alias").symlink_to("java")
    (etc / "environment").write_text("KEY=secret")
    (programs / "java/alias").symlink_to(etc / "alias/sub")
    (programs / "java/environment").symlink_to(etc / "environment")
    return programs, etc


def test_a_directory_of_settings_is_seen_if_a_program_links_to_it_and_everyone_may_read_it(
    machine: tuple[Path, Path],
) -> None:
    programs, etc = machine
    (programs / "groff/conf/x.conf").unlink()
    (programs / "groff/conf/x.conf").symlink_to("../../../../etc/groff")  # relative, and to the directory itself
    (etc / "partly/sub/key").write_text("secret")
    (etc / "partly/sub/key").chmod(0o640)
    (etc / "closed").chmod(0o750)
    (etc / "hidden/sub").chmod(0o711)
    os.mkfifo(etc / "odd/sub/fifo")
    (programs / "deep/conf").rename(programs / "deep/c")
    (programs / "deep/a/b").mkdir(parents=True)
    (programs / "deep/c").rename(programs / "deep/a/b/c")
    assert linked_settings((str(programs),), str(etc)) == (f"{etc}/groff", f"{etc}/java")


def test_the_target_of_a_link_among_settings_does_not_decide(machine: tuple[Path, Path], tmp_path: Path) -> None:
    programs, etc = machine
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret").chmod(0o600)
    (etc / "java/link").symlink_to(tmp_path / "secret")
    assert f"{etc}/java" in linked_settings((str(programs),), str(etc))
    assert linked_settings((str(tmp_path / "absent"),), str(etc)) == ()


def test_the_versions_of_java_lie_deeper(tmp_path: Path) -> None:
    programs, etc = tmp_path / "usr/lib", tmp_path / "etc"
    for name, place in (("java", "jvm/java-17/conf/management"), ("other", "other/a/conf")):
        settings, linked = _settings(etc, name), programs / place
        linked.mkdir(parents=True)
        (linked if name == "other" else linked.parent).joinpath("x.conf").symlink_to(settings / "sub/x.conf")
    assert linked_settings((str(programs),), str(etc)) == (f"{etc}/java",)
