"""Fenced actions on pods (rules C and D of the commit protocol): who carries them out is the services' business."""
