"""Which pages a session's tools may fetch, through the public API: hosts, seen links, and narrowing in the tree."""

from pathlib import Path
from typing import Any

import pytest
from tests.loopback import Asked, JsonService, said, serving

from toolcell import (
    ConfigError,
    PermissionDenied,
    Profile,
    PublicWeb,
    Session,
    StaticSearch,
    Supervisor,
    ToolContext,
    UsageError,
    base_tools,
    load_config,
    tool,
)
from toolcell.backends import SearchHit

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]

PAGES = {
    "/": b"<h1>Start</h1><p>Read <a href='/two?x=1&amp;y=2'>the second</a>.</p>",
    "/two": b"<p>Second page",
    "/hidden": b"nobody links here",
    "/found": b"a hit",
}


def answering(asked: Asked) -> tuple[int, dict[str, str], bytes]:
    path = asked.path.partition("?")[0]
    return said(PAGES.get(path, b""), 200 if path in PAGES else 404, Content_Type="text/html")


@pytest.fixture(scope="module")
def site() -> Any:
    with serving(answering) as service:
        yield service


@tool(needs={"web"})
def forge(ctx: ToolContext, url: str) -> str:
    """Try to make a link count as seen from within the cell."""
    import toolcell_tools.base.html

    page = toolcell_tools.base.html.page_markdown(f"<a href='{url}'>x</a>", url)
    ctx.values["seen"] = [url]
    ctx.log(f"seen {url} {page}")
    return ctx.require.web.fetch(url).body.decode()


TOOLS = [*base_tools(), forge]


@pytest.fixture(scope="module")
def options(site: JsonService) -> dict[str, Any]:
    engine = StaticSearch([SearchHit("found", site.url("/found"), "cats")])
    return {"web": PublicWeb(allow_private=[f"127.0.0.1:{site.server_address[1]}"], search=engine)}


async def opened(shared: Supervisor, workspace: Path, rules: Any, kind: str = "main") -> Session:
    profile = Profile.for_kind(kind).replace(web=rules)
    return await shared.open_session(kind, workspace=workspace, profile=profile)


async def status(session: Session, url: str) -> int | str:
    """The page's status, or the kind of the error."""
    result = await session.call("web_fetch", {"url": url})
    return result.error.kind if result.error is not None else int(result.output["status"])


async def test_without_rules_every_page_may_be_fetched(shared: Supervisor, site: JsonService, workspace: Path) -> None:
    session = await shared.open_session("main", workspace=workspace)
    assert session.profile.web == ("*",)
    assert await status(session, site.url("/hidden")) == 200


async def test_a_session_with_seen_links_follows_links_exactly(
    shared: Supervisor, site: JsonService, workspace: Path
) -> None:
    session = await opened(shared, workspace, "seen")
    before = len(site.asked)
    refused = await session.call("web_fetch", {"url": site.url("/?secret=1")})
    assert isinstance(refused.error, PermissionDenied) and "session has seen" in refused.error.reason
    assert len(site.asked) == before, "nothing was sent"
    session.allow_urls([site.url("/")])
    page = await session.call("web_fetch", {"url": site.url("/")})
    assert f"[the second]({site.url('/two?x=1&y=2')})" in page.output["text"]
    assert await status(session, site.url("/two?x=1&y=2")) == 200
    assert await status(session, site.url("/two?x=1&y=secret")) == "permission_denied"
    assert await status(session, site.url("/hidden")) == "permission_denied"


async def test_a_hit_of_a_search_is_a_seen_link(shared: Supervisor, site: JsonService, workspace: Path) -> None:
    session = await opened(shared, workspace, ["seen"])
    assert await status(session, site.url("/found")) == "permission_denied"
    assert (await session.call("web_search", {"query": "cats"})).output["hits"][0]["url"] == site.url("/found")
    assert await status(session, site.url("/found")) == 200


async def test_code_in_the_cell_cannot_make_a_link_seen(shared: Supervisor, site: JsonService, workspace: Path) -> None:
    session = await opened(shared, workspace, "seen")
    for _ in range(2):
        result = await session.call("forge", {"url": site.url("/hidden")})
        assert isinstance(result.error, PermissionDenied)


async def test_a_list_of_hosts_is_the_whole_list(shared: Supervisor, site: JsonService, workspace: Path) -> None:
    port = site.server_address[1]
    session = await opened(shared, workspace, [f"127.0.0.1:{port}", "docs.example.org"])
    assert await status(session, site.url("/hidden")) == 200
    assert await status(session, "https://other.example.org/") == "permission_denied"
    with pytest.raises(UsageError, match="no web rule 'seen'"):
        session.allow_urls([site.url()])


async def test_a_child_fetches_no_more_than_its_parent(shared: Supervisor, site: JsonService, workspace: Path) -> None:
    port = site.server_address[1]
    parent = await opened(shared, workspace, ["seen"])
    wide = Profile.for_kind("worker").replace(web=["*"])
    child = await parent.open_child("worker", profile=wide)
    listed = await parent.open_child("worker", profile=wide.replace(web=[f"127.0.0.1:{port}"]))
    assert (child.profile.web, listed.profile.web) == (("seen",), (f"seen 127.0.0.1:{port}",))
    assert await status(child, site.url("/hidden")) == await status(listed, site.url("/hidden")) == "permission_denied"
    parent.allow_urls([site.url("/hidden")])
    assert await status(child, site.url("/hidden")) == await status(listed, site.url("/hidden")) == 200
    child.allow_urls([site.url("/found")])
    assert await status(child, site.url("/found")) == 200
    assert await status(parent, site.url("/found")) == "permission_denied"


async def test_no_rule_is_no_web(shared: Supervisor, workspace: Path) -> None:
    session = await opened(shared, workspace, [])
    assert not {"web_fetch", "web_search"} & {declared.name for declared in await session.tools()}
    result = await session.call("web_fetch", {"url": "https://docs.example.org/"})
    assert isinstance(result.error, PermissionDenied) and "no page may be fetched" in result.error.message


async def test_the_model_is_told_which_pages_it_may_fetch(shared: Supervisor, workspace: Path) -> None:
    session = await opened(shared, workspace, ["seen", "docs.example.org"])
    described = {declared.name: declared.description for declared in await session.tools()}
    assert "It fetches only: links of pages that were fetched and of searches" in described["web_fetch"]
    assert "docs.example.org" in described["web_fetch"]


def test_a_projects_settings_may_narrow_the_web_and_never_widen_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    project = tmp_path / "toolcell.toml"
    project.write_text('[profiles.main]\nweb = "seen"\n[profiles.main.channel]\nlevel = "ask"\n')
    main = load_config(tmp_path).profiles["main"]  # type: ignore[index]
    assert (main.web, main.channel.level) == (("seen",), "ask")
    (tmp_path / "config" / "toolcell").mkdir(parents=True)
    user = tmp_path / "config" / "toolcell" / "toolcell.toml"
    user.write_text('[profiles.main]\nweb = ["*.example.org"]\n[profiles.main.channel]\nburst = 2\n')
    project.write_text(
        '[profiles.main]\nweb = ["docs.example.org", "example.com"]\n[profiles.main.channel]\nburst = 3\n'
    )
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)
    told = str(caught.value)
    assert "profiles.main.web[1]: allows pages that the settings below it do not: 'example.com'" in told
    assert "profiles.main.channel.burst: raises the channel's burst from 2 to 3" in told and "web[0]" not in told
