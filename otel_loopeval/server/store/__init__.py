"""Runs and the spans of open ones, in one SQLite file."""
