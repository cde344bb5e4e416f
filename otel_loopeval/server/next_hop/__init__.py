"""Sending on: what came in, as it came, and the verdicts."""
