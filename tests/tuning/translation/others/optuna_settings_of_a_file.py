import json

import optuna


def objective(trial):
    return trial.suggest_float("x", 0, 1)


def main(path):
    settings = json.loads(path)
    study = optuna.create_study(**settings)
    study.optimize(objective, n_trials=settings["n_trials"])


# is mode: "?"
# is search.name: "?"
# is budget.trials: "?"
# says json.loads(path) of create_study
# says n_trials=settings['n_trials']
