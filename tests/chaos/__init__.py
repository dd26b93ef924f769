"""Real processes are killed, paused and robbed of their store while a gang of 200 pods is bound.

python -m tests.chaos --runs 20 --report docs/chaos.md
"""
