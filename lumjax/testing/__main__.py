"""`python -m lumjax.testing --count 10000 --seed 1`: check random programs."""

from __future__ import annotations

import sys

from lumjax.testing.programs import main

sys.exit(main())
