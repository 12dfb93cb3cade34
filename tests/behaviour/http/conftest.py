"""The HTTP client's test APIs, for tools in cells."""

from tests.backends.http.conftest import api, other, tls_api

__all__ = ["api", "other", "tls_api"]
