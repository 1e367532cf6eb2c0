"""An objective in the manner of Optuna's tutorial: suggestions, intermediate values, pruning."""

import optuna


def objective(trial):
    rate = trial.suggest_float("rate", 1e-3, 1.0, log=True)
    kind = trial.suggest_categorical("kind", ["plain", "momentum"])
    steps = trial.suggest_int("steps", 1, 9)
    weight = speed = 0.0
    for step in range(steps):
        speed = (0.5 * speed if kind == "momentum" else 0.0) - rate * 2 * (weight - 3)
        weight += speed
        trial.report((weight - 3) ** 2, step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return (weight - 3) ** 2


def unprunable(trial):
    for step in range(trial.suggest_int("steps", 1, 9)):
        trial.report(1.0 / (step + 1), step)
    return 0.0


def pair(trial):
    return trial.suggest_float("rate", 0, 1), 0.0
