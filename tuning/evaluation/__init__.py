"""Evaluates trained models: retraining, confirmation, reproduction, the test split."""
