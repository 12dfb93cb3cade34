"""Decide what a request may reach, by a policy. The URL guard parses the host, and the allow-list decides. Pure."""

import re
from collections.abc import Iterable

from toolcell.backends.addresses import Address, Target, checked_addresses, parse_url
from toolcell.backends.egress.head import RequestHead
from toolcell.backends.protocols import Refused
from toolcell_sandbox.network import ProxyNetwork, covered

__all__ = ["EgressRules", "target_of"]


def target_of(request: RequestHead) -> Target:
    """The target of a request: the authority of CONNECT, or the URL of any other request. Raises Refused if it is
    unclear.
    """
    if request.method == "CONNECT":
        if not re.search(r":[0-9]{1,5}\Z", request.target) or set(request.target) & set("/?#"):
            raise Refused("CONNECT needs a host and a port, like example.org:443, and nothing else.")
        return parse_url(f"https://{request.target}/", any_port=True)
    if not request.target.lower().startswith("http://"):
        raise Refused(
            "This is a proxy: it takes CONNECT, and requests with a whole http:// URL. "
            "Point HTTP_PROXY and HTTPS_PROXY at it."
        )
    return parse_url(request.target, any_port=True)


class EgressRules:
    """A parsed policy."""

    def __init__(self, policy: ProxyNetwork) -> None:
        self._patterns = policy.patterns()
        self._private = policy.private_pairs()

    def check(self, target: Target) -> None:
        """Raise Refused unless the allow-list covers host and port. Call it before any name is looked up."""
        if not covered(self._patterns, target.host, target.port):
            where = _pair(target)
            raise Refused(
                f"{where} is not on the allow-list of this session's network. "
                f"Whoever runs the agent can allow it: ProxyNetwork(allow=[..., {where!r}])."
            )

    def addresses(self, target: Target, answers: Iterable[str]) -> list[Address]:
        """The addresses to which the proxy may connect. Raises Refused if one of them is neither public nor an
        exception.
        """
        try:
            return checked_addresses(target, answers, self._private)
        except Refused:
            where = _pair(target)
            raise Refused(
                f"{where} has an address that is not public. Whoever runs the agent can make an exception: "
                f"ProxyNetwork(allow_private=[..., {where!r}])."
            ) from None


def _pair(target: Target) -> str:
    return f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"
