"""A suspended session as JSON data, for the state directory, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from toolcell.backends.protocols import Channel, HttpClient, MemoryStore, WebClient
from toolcell.errors import UsageError
from toolcell.rules.channel import ChannelPolicy
from toolcell.rules.limits import SessionUsage, UsageLimits
from toolcell.rules.profile import Profile
from toolcell.runtime.core import SessionCore
from toolcell.runtime.opening import Opening
from toolcell.store.sessions import KeptSession
from toolcell_sandbox.profile import CellProfile
from toolcell_tools.capability import SessionKind
from toolcell_tools.encode import encode_json
from toolcell_tools.failures import Unencodable

VERSION = 1
_PARTS = ("channel", "memory", "web", "http")


def kept_of(core: SessionCore) -> KeptSession:
    """The session as it is kept. Raises UsageError if its config is not JSON data."""
    caller, opening = core.caller, core.opening
    info = caller.data.info
    try:
        config = encode_json(dict(info.config))
    except Unencodable as error:
        raise UsageError(
            f"The session {caller.id} cannot be suspended in a state directory: its config is not JSON data ({error})."
        ) from None
    meter = caller.meter if opening.usage_limits is not None else None
    data: dict[str, Any] = {
        "version": VERSION,
        "kind": caller.kind.value,
        "workspace": str(caller.workspace),
        "agent_id": caller.agent_id,
        "ancestors": list(info.ancestors),
        "user_id": info.user_id,
        "invocation_id": info.invocation_id,
        "context": info.context,
        "config": config,
        "values": encode_json(info.values),
        "left_s": core.left_s,
        "profile": None if opening.profile is None else _wire(opening.profile),
        "usage_limits": None if meter is None else [asdict(meter.limits), asdict(meter.usage)],
        "given": [name for name in _PARTS if getattr(opening, name) is not None],
        "tally": caller.tally.to_data(),
    }
    return KeptSession(caller.id, "" if core.parent is None else core.parent.caller.id, data)


def opening_of_kept(
    kept: KeptSession,
    channel: Channel | None,
    memory: MemoryStore | None,
    web: WebClient | None,
    http: HttpClient | None,
) -> Opening:
    """The opening of a kept session, with the parts that no file can hold. Raises UsageError if one is missing."""
    data = kept.data
    if data["version"] != VERSION:
        raise UsageError(f"The session {kept.id!r} was suspended by another version of toolcell. Open a new one.")
    given = {"channel": channel, "memory": memory, "web": web, "http": http}
    missing = [name for name in data["given"] if given[name] is None]
    if missing:
        raise UsageError(
            f"The session {kept.id!r} was opened with its own {', '.join(missing)}, which no file can hold. "
            f"Pass {', '.join(f'{name}=…' for name in missing)}."
        )
    limits = data["usage_limits"]
    return Opening(
        kind=SessionKind(data["kind"]),
        workspace=data["workspace"],
        agent_id=data["agent_id"],
        session_id=kept.id,
        channel=channel,
        memory=memory,
        web=web,
        http=http,
        config=dict(data["config"]),
        profile=_profile(data["profile"]),
        usage_limits=None if limits is None else UsageLimits(**limits[0]),
        user_id=data["user_id"],
        invocation_id=data["invocation_id"],
        context=data["context"],
        ttl_s=data["left_s"],
    )


def restore(core: SessionCore, kept: KeptSession) -> None:
    """Give a session that was opened again what it had: values, tally, and the use of its limits. Raises UsageError if
    it was kept below other agents than those above it now."""
    data, caller = kept.data, core.caller
    above = caller.data.info.ancestors
    if tuple(data.get("ancestors", above)) != above:  # an earlier version kept none
        raise UsageError(
            f"The session {kept.id!r} belongs to {'/'.join((*data['ancestors'], data['agent_id']))!r}, and its parent "
            f"is of {'/'.join(above)!r} now. Open a new one."
        )
    caller.data.set_values(dict(data["values"]))
    caller.tally.restore(data["tally"])
    if data["usage_limits"] is not None and caller.meter is not None:
        caller.meter.restore(SessionUsage(**data["usage_limits"][1]))


_OWN = frozenset(Profile.__dataclass_fields__) - frozenset(CellProfile.__dataclass_fields__)
"""The fields of a profile that no cell gets."""


def _wire(profile: Profile) -> dict[str, Any]:
    return profile.to_wire() | {name: _listed(getattr(profile, name)) for name in _OWN}


def _profile(wire: Mapping[str, Any] | None) -> Profile | None:
    if wire is None:
        return None
    own = {name: _tupled(wire[name]) for name in _OWN & wire.keys()}
    return Profile.from_wire({name: value for name, value in wire.items() if name not in _OWN}).replace(**own)


def _listed(value: object) -> object:
    if isinstance(value, ChannelPolicy):
        return asdict(value)
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def _tupled(value: object) -> object:
    if isinstance(value, dict):
        return ChannelPolicy(**cast("dict[str, Any]", value))
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value
