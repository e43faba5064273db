"""Reports: what `explain` knows, as text, as one HTML file, and compared with another report."""

from __future__ import annotations

from lumjax.report.comparison import Comparison as Comparison
from lumjax.report.explanation import Explanation as Explanation
