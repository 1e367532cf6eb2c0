import optuna

START = {"bagging_freq": 5}


def objective(trial):
    shape = trial.suggest_categorical("shape", [(8,), (8, 8)])
    return trial.suggest_int("bagging_freq", 1, 7) + len(shape)


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize")
    study.set_metric_names(["auc"])
    study.enqueue_trial({"bagging_freq": 1})
    study.enqueue_trial(START)
    study.enqueue_trial({"bagging_freq": 2}, skip_if_exists=True)
    study.add_trial(optuna.trial.create_trial(params={}, value=0.1))
    study.optimize(objective, n_trials=10)

# is metric: auc
# is mode: max
# is points: [{bagging_freq: 1}, {bagging_freq: 5}]
# is space.shape: {choice: [[8], [8, 8]]}
# says tuples
# says skip_if_exists=True
# says study.add_trial
