"""Tokens: their files and their forms."""

from pathlib import Path

import pytest

from toolcell import UsageError
from toolcell.mcp import TokenList

TOKEN = "0123456789abcdef"


def test_a_file_of_tokens_names_principals(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# clients\n\nann {TOKEN}\nann {TOKEN}-new\nbob {TOKEN}-bob\n")
    path.chmod(0o600)
    tokens = TokenList.read(path)
    said = [tokens.principal(f"Bearer {TOKEN}{end}") for end in ("", "-new", "-bob", "-other")]
    assert said == ["ann", "ann", "bob", None]
    assert tokens.principal(f"bearer  {TOKEN}") == "ann"
    assert tokens.principal(None) is None


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"ann {TOKEN}\n")
    path.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        TokenList.read(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no token"),
        ("ann", "Line 1"),
        (f"ann {TOKEN} more", "Line 1"),
        (f"Ann {TOKEN}", "name of a principal"),
        (f"../x {TOKEN}", "name of a principal"),
        ("ann short", "too short"),
        (f"ann {TOKEN}\u00fc", "other characters"),
    ],
)
def test_a_wrong_line_is_named_and_no_token_is_shown(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        TokenList.parse(text, "tokens.txt")
    assert TOKEN not in str(caught.value)
