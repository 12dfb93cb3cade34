"""What calls come to in numbers, by tool and version. Fed with the records of the journal, never read by a call."""

from .histogram import Histogram
from .metrics import Metrics, Quantiles, SuggestedLimits, ToolMetrics

__all__ = ["Histogram", "Metrics", "Quantiles", "SuggestedLimits", "ToolMetrics"]
