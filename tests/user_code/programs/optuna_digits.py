"""Optuna, pruning tutorial: a linear classifier of scikit-learn that reports after each epoch."""

import numpy as np
import optuna
import sklearn.datasets
import sklearn.linear_model
import sklearn.model_selection


def objective(trial):
    data, target = sklearn.datasets.load_digits(return_X_y=True)
    train_x, valid_x, train_y, valid_y = sklearn.model_selection.train_test_split(
        data, target, test_size=0.25, random_state=0
    )
    alpha = trial.suggest_float("alpha", 1e-5, 1e3, log=True)
    classifier = sklearn.linear_model.SGDClassifier(alpha=alpha, random_state=0)
    for step in range(1, 9):
        for _ in range(150):
            classifier.partial_fit(train_x, train_y, classes=np.arange(10))
        trial.report(1.0 - classifier.score(valid_x, valid_y), step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return 1.0 - classifier.score(valid_x, valid_y)


if __name__ == "__main__":
    study = optuna.create_study(pruner=optuna.pruners.MedianPruner())
    study.optimize(objective, n_trials=20)
