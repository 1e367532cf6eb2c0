import optuna


def objective(trial):
    x = trial.suggest_float("x", 0, 5)
    return 4 * x**2, (x - 5) ** 2


def constraints(trial):
    return (1.0,)


if __name__ == "__main__":
    sampler = optuna.samplers.NSGAIISampler(constraints_func=constraints)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    study.optimize(objective, n_trials=32)
    optuna.visualization.plot_pareto_front(study)

# is mode: "?"
# is search: {name: nsga2, population: 50}
# says ['minimize', 'minimize']
# says constraints_func=constraints
