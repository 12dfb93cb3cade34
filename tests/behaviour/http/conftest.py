"""The APIs that the HTTP client is tested with serve the tools of cells too."""

from tests.backends.http.conftest import api, other, tls_api

__all__ = ["api", "other", "tls_api"]
