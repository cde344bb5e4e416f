"""PraisonAI's guards: one firing of a guard is one guard event on the current run."""
