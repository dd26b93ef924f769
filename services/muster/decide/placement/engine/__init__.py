"""The placement engine for batches: slot profiles, CP-SAT over them, rack subsets, expansion, true-capacity fix-up.

profile         rows grouped into pools (cell and tier) with how many slots of each size they hold
demands         gangs as demands on slots; which can be told so, and which stay where they are
plan            how many pods of whom stand in which pool; the greedy's answer as a first plan
candidates      the domains that a gang may be put into in one problem
master          one problem over some pools as rows and variables; CP-SAT by index, with a complete hint
search          the whole model where it is small, then rack subset after rack subset, until the budget is used up
expand_profile  counts per pool become pods on nodes, largest first, best fit
fixup           true capacities again: what has no cards, what was left out
choose          the better of what there was and what was found
"""
