"""Derivatives: forward mode, linearisation, transposition."""
