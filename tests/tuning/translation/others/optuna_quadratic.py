import optuna


def objective(trial):
    x = trial.suggest_float("x", -100, 100)
    y = trial.suggest_categorical("y", [-1, 0, 1])
    return x**2 + y


if __name__ == "__main__":
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=10))
    study.optimize(objective, n_trials=100, timeout=600)
    print(study.best_value)

# is trainable: optuna_quadratic.py:objective
# is mode: min
# is space: {x: {uniform: [-100.0, 100.0]}, y: {choice: [-1, 0, 1]}}
# is search: {name: tpe, multivariate: true, constant_liar: true}
# is seed: 10
# is budget: {trials: 100, time: 600}
# is resources.concurrency: 1
# is scheduler: {name: none}
