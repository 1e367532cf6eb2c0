import optuna
from optuna.pruners import PatientPruner, PercentilePruner


def objective(trial):
    x = trial.suggest_float("x", 0.05, 0.95, step=0.1)
    trial.report(x, 1)
    if trial.should_prune():
        raise optuna.TrialPruned()
    return x


if __name__ == "__main__":
    pruner = PatientPruner(PercentilePruner(25.0), patience=1)
    study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.QMCSampler())
    study.optimize(objective)

# is space: {x: {ordinal: [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95]}}
# is scheduler.name: "?"
# is search.name: "?"
# is budget.trials: "?"
# says QMCSampler
# says PatientPruner
# says patience=1
# says without n_trials and timeout
