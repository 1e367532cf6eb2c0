"""Tests of `tune up`."""
