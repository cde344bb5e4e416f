"""Dialects: how a convention spells the facts of a run in spans."""
