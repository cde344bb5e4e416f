"""Spans as they come in → runs that are over."""
