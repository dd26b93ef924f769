"""The scheduler's core: a snapshot in, instructions out (DESIGN 6).

asks ─► shares ─► order ─► minimums ─► repair by the exact model ─► surplus ─► instructions, reasons
"""

from muster.decide.scheduling.rounds import Decision, decide

__all__ = ["Decision", "decide"]
