"""`python -m lumjax.testing --count 10000 --seed 1`: check random programs."""

from __future__ import annotations

import sys

from lumjax.testing.sweep import main

sys.exit(main())
