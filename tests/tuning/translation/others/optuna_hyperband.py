import optuna
from optuna.study import StudyDirection


def objective(trial):
    lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    for step in range(30):
        trial.report(lr * step, step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return lr


def main():
    pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=30, reduction_factor=3)
    study = optuna.create_study(direction=StudyDirection.MAXIMIZE, pruner=pruner, study_name="s")
    try:
        study.optimize(objective, n_trials=20, n_jobs=-1, catch=(ValueError,), callbacks=[print])
    except KeyboardInterrupt:
        pass


# is mode: max
# is scheduler: {name: hyperband, grace_period: 1, max_t: 30, reduction_factor: 3}
# is resources: null
# says study_name='s'
# says catch=(ValueError,)
# says callbacks=[print]
