"""Distillation: a small language model learns from a larger one."""
