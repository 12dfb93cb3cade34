"""HTTP requests for tools, checked by the rules of the session's profile, and sent with credentials that no cell sees.

`requester` decides what is sent and follows redirects; `client` sends one request to one host, and removes its
credentials from the answer.
"""

from toolcell.backends.http.client import BrokeredHttp
from toolcell.backends.http.requester import Requester, Trail

__all__ = ["BrokeredHttp", "Requester", "Trail"]
