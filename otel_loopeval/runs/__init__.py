"""Runs: facts about a loop in, a verdict out, whether they come live or from stored spans."""
