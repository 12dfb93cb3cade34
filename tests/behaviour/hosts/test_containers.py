"""Nested and restricted hosts: a supervisor works there, or names the missing mechanism and its cure."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from toolcell_sandbox.kernel.syscalls import TABLES
from toolcell_sandbox.report import NAMES

from .conftest import EXAMPLES, Found, assert_works

Host = Callable[..., Found]
SECCOMP = EXAMPLES / "docker/seccomp.json"
NAMESPACES = [name for name in NAMES if name.endswith("_namespace")]


def row(name: str, steps: str, *facts: Any, **options: Any) -> Any:
    """A host: the steps that make it, its user, the steps `then` that restrict this user, and the facts."""
    marks = [pytest.mark.root] if steps or not options.get("user") else []
    return pytest.param(steps, options, *facts, id=name, marks=marks)


@pytest.mark.parametrize(
    ("steps", "options", "identity", "substituted"),
    [
        row("container", "own_cgroups container", "root", []),
        row("masked /proc", "container masked_proc no_cgroups", "root", ["cgroup"]),
        row("hidepid=2", "container hidden_proc no_cgroups", "root", ["cgroup"]),
        row("hidepid=2, ordinary user", "container hidden_proc no_cgroups", "rootless", ["cgroup"], user=True),
        row(
            "masked /proc, ordinary user", "container masked_proc no_cgroups", "rootless", ["cgroup", "proc"], user=True
        ),
        row("few devices", "container bare_dev no_cgroups", "root", ["cgroup"]),
        row("no cgroups", "container no_cgroups", "root", ["cgroup"]),
        row("only the workspace is writable", "container read_only_root={workspace} no_cgroups", "root", ["cgroup"]),
        row("root without CAP_SYS_ADMIN", "own_cgroups container docker_capabilities", "userns-root", []),
        row("rootless container", "", "userns-root", ["cgroup"], user=True, then="rootless_container"),
        row(
            "rootless container, masked /proc",
            "",
            "userns-root",
            ["cgroup", "proc"],
            user=True,
            then="rootless_container masked_proc",
        ),
    ],
)
def test_works_there(steps: str, options: dict[str, Any], identity: str, substituted: list[str], host: Host) -> None:
    found = host(steps, **options)
    assert_works(found)
    assert found["identity"] == identity
    told = found["doctor"]
    assert (told["status"], told["missing"], told["said"]) == (0, {}, ""), told
    assert set(told["substituted"]) >= set(substituted), told
    assert "proc" in substituted or "proc" not in told["substituted"], told


@pytest.mark.parametrize(
    ("steps", "options", "mechanism", "cure"),
    [
        row(
            "Docker",
            "container masked_proc no_cgroups docker_capabilities docker_filter",
            "user_namespace",
            "in Docker with a seccomp profile that allows unshare",
        ),
        row("Docker, ordinary user", "", "user_namespace", "allows unshare", user=True, then="docker_filter"),
        row(
            "Docker that allows namespaces, root, no writable cgroups",
            "container masked_proc no_cgroups docker_capabilities",
            "cgroup",
            "run in it as an ordinary user",
        ),
        row("AppArmor", "", "mount_namespace", "AppArmor", user=True, then="apparmor"),
        row(
            "Ubuntu",
            "ubuntu_switch",
            "mount_namespace",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
            user=True,
            then="apparmor",
        ),
        row(
            "Debian",
            "debian_switch",
            "user_namespace",
            "Set sysctl kernel.unprivileged_userns_clone=1",
            user=True,
            then="docker_filter",
        ),
        row(
            "max_user_namespaces=0",
            "",
            "user_namespace",
            "Set sysctl user.max_user_namespaces above 0",
            user=True,
            then="no_user_namespaces",
        ),
        row(
            "inside Landlock", "", "mount_namespace", "an outer Landlock sandbox does not", user=True, then="landlocked"
        ),
        row(
            "inside Landlock, root",
            "container no_cgroups landlocked",
            "mount_namespace",
            "an outer Landlock sandbox does not",
        ),
        row(
            "read-only /proc, root",
            "container no_cgroups read_only_proc",
            "idmapped_mounts",
            "mount -o remount,rw /proc",
        ),
        row(
            "read-only /proc, rootless container",
            "",
            "user_namespace",
            "mount -o remount,rw /proc",
            user=True,
            then="rootless_container read_only_proc",
        ),
    ],
)
def test_refuses_there_with_the_mechanism_and_its_cure(
    steps: str, options: dict[str, Any], mechanism: str, cure: str, host: Host
) -> None:
    found = host(steps, **options)
    assert found.get("mechanism") == mechanism, found
    assert mechanism in found["unavailable"] and cure in found["cure"], found
    told = found["doctor"]
    needing = {"proc", "mount_setattr", "pivot_root", "mount_namespace", "pid_namespace"} & told["cures"].keys()
    if mechanism == "user_namespace":  # without which none of the others can be had: what cures it cures them
        assert {told["cures"][name] for name in needing} == {told["cures"][mechanism]}, told
    for said in told["missing"].values():
        assert found["unavailable"].count(said) == 1, found
    assert told["status"] == 1 and told["said"] == "", told
    assert cure in told["missing"][mechanism], told


@pytest.mark.root
def test_without_proc_it_says_so_and_the_doctor_too(host: Host) -> None:
    found = host("no_proc")
    assert found["mechanism"] == "proc" and found["cure"] == "Mount it: mount -t proc proc /proc."
    assert found["doctor"]["status"] == 2
    assert "There is no /proc here" in found["doctor"]["said"] and "mount -t proc" in found["doctor"]["said"]


@pytest.mark.root  # for the limit on processes is then the user's, who must have no others: only root can be another
def test_in_docker_an_ordinary_user_may_do_without_namespaces_knowingly(host: Host) -> None:
    allow = [*NAMESPACES, "mount_setattr", "pivot_root"]
    found = host(user=True, then="docker_filter", allow=allow)
    assert_works(found)
    assert found["doctor"]["missing"].keys() == set(allow)


REFUSED_TO_CONTAINERS = """
io_uring_setup io_uring_enter io_uring_register bpf perf_event_open userfaultfd lookup_dcookie
add_key request_key keyctl open_by_handle_at process_vm_readv process_vm_writev kcmp
reboot kexec_load kexec_file_load init_module finit_module delete_module create_module get_kernel_syms query_module
swapon swapoff acct syslog vhangup iopl ioperm settimeofday clock_settime clock_adjtime adjtimex
quotactl quotactl_fd file_setattr fanotify_init uselib ustat sysfs _sysctl nfsservctl
"""


def test_under_the_shipped_seccomp_profile_a_supervisor_works_with_the_mechanisms_of_a_host(host: Host) -> None:
    found = host(user=True, then=f"docker_profile={SECCOMP}")
    assert_works(found)
    assert (found["identity"], found["doctor"]["missing"]) == ("rootless", {}), found


def test_the_shipped_seccomp_profile_allows_each_known_call_except_those_that_reach_the_host() -> None:
    groups = json.loads(SECCOMP.read_text())["syscalls"]
    allowed = {name for group in groups if group["action"] == "SCMP_ACT_ALLOW" for name in group["names"]}
    refused = {name for group in groups if group["action"] == "SCMP_ACT_ERRNO" for name in group["names"]}
    assert len(groups) > 1 and refused == set(REFUSED_TO_CONTAINERS.split())
    assert allowed == set().union(*TABLES.values()) - refused


@pytest.mark.root
def test_in_docker_root_may_do_without_a_pids_cgroup_knowingly(host: Host) -> None:
    found = host("container masked_proc no_cgroups docker_capabilities", allow=["cgroup"])
    crowd = found.pop("crowd")
    assert_works(found)
    assert crowd == "processes" or crowd == 120  # only the supervisor's watch counts there
