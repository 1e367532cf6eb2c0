import optuna


def objective(trial):
    return trial.suggest_int("n", 1, trial.suggest_int("most", 2, 9))


def main(resume):
    study = optuna.create_study(direction="maximize")
    study.sampler = optuna.samplers.CmaEsSampler()
    study.optimize(objective, n_trials=50)
    study.optimize(objective, n_trials=10)


# is mode: "?"
# is budget.trials: "?"
# is search.name: "?"
# is scheduler.name: "?"
# is space: {most: {randint: [2, 10]}, n: "?"}
# says one of several searches
# says its range is not known
# says CmaEsSampler
