"""Scenarios: small clusters with jobs and what every sound scheduler must do with them, and the runner that judges the core."""
