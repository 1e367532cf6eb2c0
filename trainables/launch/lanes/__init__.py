"""Lanes: long-lived groups of workers that run trial after trial."""

LANE = "lane-"
"""How the names of lanes and of their threads begin."""
