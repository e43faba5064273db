"""lumjax."""
