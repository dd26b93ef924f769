"""What every service process shares: configuration, logs, metrics and health, start and bounded stop."""

from muster.runtime.config import ServiceConfig
from muster.runtime.health import Readiness
from muster.runtime.service import ServiceContext, run_service

__all__ = ["Readiness", "ServiceConfig", "ServiceContext", "run_service"]
