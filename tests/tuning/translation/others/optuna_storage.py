import optuna


class Model:
    pass


def objective(trial, data=None):
    trial.suggest_categorical("model", [Model(), Model()])
    return trial.suggest_float("x", 0, 1)


if __name__ == "__main__":
    study = optuna.load_study(study_name="shared", storage="sqlite:///s.db")
    study.optimize(lambda trial: objective(trial, 3), n_trials=50)

# is mode: "?"
# is search.name: "?"
# is space: {model: "?", x: {uniform: [0.0, 1.0]}}
# is budget.trials: 50
# says load_study
# says lambda trial
# says storage='sqlite:///s.db'
# says its range is not known
