"""Jobs and gangs as state machines: what Kubernetes should show next, given what it shows now.

Every function is level-triggered: it looks at the present objects only, and its actions bring them nearer to what they
should be. Done twice, in another order, or by another process after a crash, the same actions lead to the same place:
names are fixed, deletes carry uids, status writes carry the resourceVersion that was judged.
"""
