"""Metrics of calls, by tool and version, made from the records of the journal. No call reads them."""

from .histogram import Histogram
from .metrics import Metrics, Quantiles, SuggestedLimits, ToolMetrics

__all__ = ["Histogram", "Metrics", "Quantiles", "SuggestedLimits", "ToolMetrics"]
