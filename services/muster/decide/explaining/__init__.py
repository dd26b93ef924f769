"""Explanations: why a gang waits, what is asked and what is missing, who holds it, and what would cure it.

explainer                each round, for every gang that waits: one code, the numbers that decided, a sentence
nodes, limits, fitting   the questions it asks, one after the other
details, holders         worked out when somebody asks: the best place, who holds it, why the other one does not do
fixes                    what would cure a wait, from its code and numbers
"""
