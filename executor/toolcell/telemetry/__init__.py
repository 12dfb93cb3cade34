"""Metrics of calls by tool and version, computed from the journal's records. No call reads them."""

from .histogram import Histogram
from .metrics import Metrics, Quantiles, ToolMetrics

__all__ = ["Histogram", "Metrics", "Quantiles", "ToolMetrics"]
