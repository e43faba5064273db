"""The search: terms, rules, extraction, planning."""
