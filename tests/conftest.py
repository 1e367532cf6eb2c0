"""Settings of all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# On a busy machine an example takes any time; pytest's timeout limits a test.
settings.register_profile("any time", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any time")
