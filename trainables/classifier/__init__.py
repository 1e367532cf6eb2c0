"""Classifiers of texts, regressions, and reward models of preferred answers."""
