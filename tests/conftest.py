"""What every test may use: a real NATS server (tests/nats_fixtures.py)."""

pytest_plugins = ["tests.nats_fixtures"]
