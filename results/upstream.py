"""Every private part of another package that `results` uses; see `tuning/upstream.py`."""

PRIVATE: dict[str, str] = {
    # tracking/mlflow/database.py runs the migrations in a file of another name.
    "mlflow.store.db.utils:_initialize_tables": "(engine)",
}
