import optuna


def objective(trial):
    kind = trial.suggest_categorical("classifier", ["SVC", "RandomForest"])
    if kind == "SVC":
        return trial.suggest_float("svc_c", 1e-10, 1e10, log=True)
    depth = trial.suggest_int("rf_max_depth", 2, 32, log=True)
    layers = trial.suggest_int("layers", 1, 3)
    widths = [trial.suggest_int(f"width_{i}", 4, 128, step=4) for i in range(layers)]
    if depth == 7:
        trial.suggest_float("rare", 0, 1)
    return depth + sum(widths)


study = None
if __name__ == "__main__":
    optuna.create_study(direction="maximize").optimize(objective, 100)

# is mode: max
# is space.svc_c: {loguniform: [1.0e-10, 10000000000.0]}
# is space.rf_max_depth: {lograndint: [2, 33]}
# is space.rare: {uniform: [0.0, 1.0]}
# is space.?: "?"
# is budget.trials: 100
# says in some branches only
# says of a name that is computed
