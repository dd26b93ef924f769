"""How well cards are used: the published protocol of the FGD paper on Alibaba's public lists.

python -m loadtest openb NODES.csv PODS.csv [PODS.csv …] [--orders 10] [--window 100 --moves 20] [--write FILE] [--json FILE]
"""

from loadtest.openb.command import main

__all__ = ["main"]
