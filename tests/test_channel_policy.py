"""The policy of a channel: its levels, its token bucket, and what is narrower."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell import ChannelPolicy, Profile, UsageError
from toolcell.rules.channel import LEVELS, TokenBucket, allowed_at

policies = st.builds(
    ChannelPolicy, level=st.sampled_from(LEVELS), burst=st.integers(1, 9), per_s=st.floats(0.01, 100.0)
)


def test_each_level_allows_what_the_one_below_does() -> None:
    rising = [allowed_at(level) for level in LEVELS]
    assert rising[0] == frozenset()
    assert rising[1] == {"status", "ask", "read"}
    assert rising[2] - rising[1] == {"send", "react", "edit", "upload"}
    assert rising[3] - rising[2] == {"send_to", "pin"}


@given(policies, policies)
def test_the_narrowed_policy_is_narrower_than_both(one: ChannelPolicy, two: ChannelPolicy) -> None:
    both = one.narrowed(two)
    assert both.is_narrower_than(one) and both.is_narrower_than(two) and both == two.narrowed(one)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"level": "shout"}, "is not a level: 'shout'. The levels are none, ask, reply, broadcast"),
        ({"burst": 0}, "burst is not a finite number above zero: 0"),
        ({"burst": True}, "burst is not a finite number"),
        ({"per_s": float("inf")}, "per_s is not a finite number"),
        ({"per_s": float("nan")}, "per_s is not a finite number"),
    ],
)
def test_a_wrong_policy_is_refused(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        ChannelPolicy(**wrong)  # type: ignore[arg-type]


def test_a_bucket_refills_with_time_and_never_beyond_its_size() -> None:
    now = 100.0
    bucket = TokenBucket(2, 0.5, lambda: now)
    assert (bucket.remaining, bucket.wait_s) == (2, 0.0)
    bucket.take()
    bucket.take()
    assert (bucket.remaining, bucket.wait_s) == (0, 2.0)
    now += 1.0
    assert (bucket.remaining, bucket.wait_s) == (0, 1.0)
    now += 1.0
    assert (bucket.remaining, bucket.wait_s) == (1, 0.0)
    now += 1_000.0
    assert bucket.remaining == 2


def test_a_profile_narrows_its_channel_and_says_so() -> None:
    main = Profile.for_kind("main")
    reply = main.narrow(channel=ChannelPolicy(level="reply", burst=500))
    assert reply.channel == ChannelPolicy(level="reply", burst=60)
    assert reply.is_narrower_than(main) and not main.is_narrower_than(reply)
    assert "channel      level 'reply': 60 operations at once, then 1 a second" in reply.explain()
    with pytest.raises(UsageError, match=r"Profile\.channel is not a ChannelPolicy"):
        Profile(channel="reply")  # type: ignore[arg-type]
