"""Rehearses a sweep's pipeline with real workers: `tune doctor`, described in docs/doctor.md."""
