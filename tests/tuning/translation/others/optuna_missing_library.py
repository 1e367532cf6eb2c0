import a_library_that_nobody_has


def objective(trial):
    return a_library_that_nobody_has.fit(trial.suggest_float("x", 0, 1))


# refused: cannot be imported
