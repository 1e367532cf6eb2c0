from ray import tune

from helpers import extend, train

space = {"lr": tune.uniform(0, 1), "batch": tune.grid_search([1, 2])}
if space:
    space["depth"] = tune.randint(1, 5)
extend(space)
tune.Tuner(
    train,
    param_space=space,
    tune_config=tune.TuneConfig(metric="acc", mode="max", num_samples=-1),
).fit()

# is space: {lr: {uniform: [0, 1]}, batch: {grid_search: [1, 2]}, "?": "?"}
# is budget.trials: "?"
# says space['depth']
# says num_samples=-1
