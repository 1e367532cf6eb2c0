import optuna


def objective(trial):
    return trial.suggest_float("x", 0, 1)


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize")
    for _ in range(9):
        trial = study.ask()
        study.tell(trial, objective(trial))

# is mode: "?"
# is search.name: "?"
# is scheduler.name: "?"
# is budget.trials: "?"
# says study.ask()
# says create_study(direction='maximize')
