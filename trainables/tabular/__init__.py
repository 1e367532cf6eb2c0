"""Boosted trees on tables: `xgboost` and `lightgbm`."""
