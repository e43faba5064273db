"""From terms to kernels: index terms, kernel IR, lowering, verification."""
