"""The Optuna study of a sweep: proposals, outcomes, and the journal that keeps them."""
