from ray import tune
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.optuna import OptunaSearch


def objective(config):
    tune.report({"mean_loss": config["width"]})


algo = OptunaSearch(metric="mean_loss", mode="min")
algo = ConcurrencyLimiter(algo, max_concurrent=4)
tune.Tuner(
    objective,
    tune_config=tune.TuneConfig(search_alg=algo, num_samples=10),
    param_space={"width": tune.uniform(0, 20)},
).fit()

# is metric: "?"
# is mode: "?"
# is search.name: "?"
# says OptunaSearch(metric='mean_loss', mode='min')
