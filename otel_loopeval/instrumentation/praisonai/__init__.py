"""PraisonAI (``praisonaiagents``): its loops and its guards.

Nothing of the package is imported here: patches are put in place when the program imports the modules, or
at once if it has.
"""

from otel_loopeval.instrumentation.praisonai.table import PATCHES, Patch

__all__ = ["PATCHES", "Patch"]
