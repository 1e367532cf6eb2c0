import optuna


def objective(trial):
    rate = trial.suggest_loguniform("rate", 1e-5, 1e-1)
    trial.suggest_uniform("drop", 0.0, 0.5)
    trial.suggest_discrete_uniform("step", 0.0, 1.0, 0.25)
    trial.report(rate, 0)
    if trial.should_prune():
        raise optuna.exceptions.TrialPruned()
    return rate


study = optuna.create_study(
    pruner=optuna.pruners.SuccessiveHalvingPruner(), sampler=optuna.samplers.RandomSampler()
)
if __name__ == "__main__":
    for _ in range(3):
        study.optimize(objective, n_trials=10)

# is space: {rate: {loguniform: [1.0e-5, 0.1]}, drop: {uniform: [0.0, 0.5]}, step: {quniform: [0.0, 1.0, 0.25]}}
# is search: {name: random}
# is scheduler: {name: asha, grace_period: "?", reduction_factor: 4, max_t: "?"}
# is budget.trials: "?"
# says in a branch or a loop
# says without grace_period
