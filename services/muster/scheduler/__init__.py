"""The scheduler: the only committer of capacity. A shell around muster.decide."""
