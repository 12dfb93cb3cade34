"""git, pip and curl, unchanged, through the proxy of a shell cell, with servers on loopback."""

import base64
import hashlib
import os
import subprocess
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolcell import Limits, Profile, ProxyNetwork, RecentJournal, Session, SessionKind, Supervisor, base_tools
from toolcell.session import core_of

from .conftest import Resolver, Site, require_program

pytestmark = pytest.mark.anyio
GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": "/nonexistent"}
GIT |= {f"GIT_{who}_{what}": f"{what}@test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop is enough, because the proxy's own tests use both."""
    return "asyncio"


@pytest.fixture
async def supervisor(site: Site, resolver: Resolver) -> AsyncIterator[Supervisor]:
    """A supervisor whose Main sessions reach only the site, by its address and as packages.example.org."""
    allowed = [f"127.0.0.1:{site.port}", f"packages.example.org:{site.port}"]
    policy = ProxyNetwork(allow=["*.elsewhere.example.org"], allow_private=allowed)
    main = Profile.for_kind("main").replace(network=policy, limits=Limits(memory_bytes=512 * 1024 * 1024))
    main = main.lifting(".git/hooks", ".git/config")  # which git clone writes
    async with Supervisor(base_tools(), profiles={SessionKind.MAIN: main}, resolve=resolver) as supervisor:
        yield supervisor


@pytest.fixture
async def session(supervisor: Supervisor, workspace: Path) -> Session:
    """A Main session of the supervisor."""
    return await supervisor.open_session("main", workspace=workspace)


async def shell(session: Session, command: str) -> tuple[int, str]:
    output = (await session.call("shell", {"command": command})).unwrap()
    return output["exit_code"], output["stdout"] + output["stderr"]


def refused(session: Session) -> set[tuple[str, int]]:
    journal = core_of(session).services.journal
    assert isinstance(journal, RecentJournal)
    data = [record.data for record in journal.of(kind="egress")]
    return {(record["host"], record["port"]) for record in data if not record["allowed"]}


def make_wheel(folder: Path) -> Path:
    """A wheel of one module, by hand (PEP 427)."""
    files = {
        "greeting_cell.py": b"text = 'hello from the wheel'\n",
        "greeting_cell-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: greeting-cell\nVersion: 1.0\n",
        "greeting_cell-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    record = "greeting_cell-1.0.dist-info/RECORD"
    files[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    path = folder / "greeting_cell-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


@pytest.mark.parametrize("host", ["127.0.0.1", "packages.example.org"])
async def test_git_clones(host: str, session: Session, site: Site, tmp_path: Path, workspace: Path) -> None:
    require_program("git", "git")
    source, bare = tmp_path / "source", site.folder / "repo.git"
    source.mkdir()
    (source / "README").write_text("a repository\n")
    for command in (
        ["init", "-q", "-b", "main", str(source)],
        ["-C", str(source), "add", "README"],
        ["-C", str(source), "commit", "-q", "-m", "first"],
        ["clone", "-q", "--bare", str(source), str(bare)],
        ["-C", str(bare), "update-server-info"],
    ):
        subprocess.run(["git", *command], check=True, env=os.environ | GIT, timeout=30)
    clone = f"git clone -q http://{host}:{site.port}/repo.git copy"
    code, said = await shell(session, f"{clone} && git -C copy log --oneline")
    assert code == 0 and "first" in said, said
    assert (workspace / "copy" / "README").read_text() == "a repository\n"
    code, said = await shell(session, "git clone -q https://git.example.com/git other")
    assert code != 0 and "403" in said and not (workspace / "other").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "packages.example.org"])
async def test_pip_installs(host: str, session: Session, site: Site, workspace: Path) -> None:
    folder = site.folder / "simple" / "greeting-cell"
    folder.mkdir(parents=True)
    wheel = make_wheel(folder)
    (folder / "index.html").write_text(f'<!DOCTYPE html><a href="{wheel.name}">{wheel.name}</a>')
    pip = "python -m pip --isolated --disable-pip-version-check --no-cache-dir --retries 0 --proxy $HTTP_PROXY"
    options = f"--index-url http://{host}:{site.port}/simple --trusted-host {host} --target here"
    code, said = await shell(session, f"{pip} install {options} greeting-cell")
    assert code == 0, said
    code, said = await shell(session, "cd here && python -c 'import greeting_cell; print(greeting_cell.text)'")
    assert (code, said) == (0, "hello from the wheel\n")
    code, said = await shell(
        session, f"{pip} install --index-url https://packages.example.org/ --target there greeting-cell"
    )
    assert code != 0 and refused(session) == {("packages.example.org", 443)}


async def test_curl_fetches_uploads_and_is_told_why_not(session: Session, site: Site, workspace: Path) -> None:
    require_program("curl", "curl")
    url = f"http://packages.example.org:{site.port}"
    assert await shell(session, f"curl -sS {url}/hello.txt") == (0, "hello there\n")
    assert await shell(session, f"curl -sS --proxytunnel {url}/hello.txt") == (0, "hello there\n")
    (workspace / "big").write_bytes(b"x" * 2_000_000)
    code, said = await shell(session, f"curl -sS --data-binary @big {url}/ | wc -c")  # with Expect: 100-continue
    assert (code, said.strip()) == (0, "2000000")
    code, said = await shell(session, f"curl -sS -T - -X POST {url}/ < big | wc -c")  # chunked
    assert (code, said.strip()) == (0, "2000000")
    three = f"-o a {url}/hello.txt -o b {url}/missing -o c {url}/hello.txt"  # one after the other, by one curl
    assert await shell(session, f"curl -sS -w '%{{http_code}} ' {three}") == (0, "200 404 200 ")
    code, said = await shell(session, "curl -sSv https://evil.example.org/")
    assert code == 56 and "evil.example.org:443 is not on the allow-list" in said
    code, said = await shell(session, f"curl -sS --noproxy '*' http://127.0.0.1:{site.port}/hello.txt")
    assert code == 7, said
    code, said = await shell(session, "curl -sS https://x.elsewhere.example.org/")
    assert code == 56, said
    journal = core_of(session).services.journal
    assert isinstance(journal, RecentJournal)
    data = [record.data for record in journal.of(kind="egress")]
    assert [record["allowed"] for record in data] == [True] * 7 + [False] * 2
    assert max(record["bytes_out"] for record in data) > 2_000_000


async def test_curl_speaks_tls_through_a_tunnel(
    supervisor: Supervisor, session: Session, tmp_path: Path, workspace: Path
) -> None:
    require_program("curl", "curl")
    import ssl
    import threading

    pem = Path(__file__).parent.parent.parent / "backends" / "tls_test.pem"
    folder = tmp_path / "secure"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello in secret\n")
    server = Site(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        place = f"tls.example.org:{server.port}"
        policy = ProxyNetwork(allow_private=[place])
        profile = session.profile.replace(network=policy)
        other = await supervisor.open_session("main", workspace=workspace, profile=profile)
        certificate = pem.read_text()
        (workspace / "ca.pem").write_text(certificate[certificate.index("-----BEGIN CERTIFICATE") :])
        code, said = await shell(other, f"curl -sS --cacert ca.pem https://{place}/hello.txt")
        assert (code, said) == (0, "hello in secret\n")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
