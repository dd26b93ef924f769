"""`muster demo`: everything for real on this machine, in a minute: NATS, a simulated cluster, the services, jobs."""

from muster.cli.demo.command import add

__all__ = ["add"]
