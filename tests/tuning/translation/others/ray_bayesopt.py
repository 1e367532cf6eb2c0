from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.bayesopt import BayesOptSearch


def objective(config):
    for _ in range(config["steps"]):
        tune.report({"mean_loss": config["width"]})


algo = BayesOptSearch(utility_kwargs={"kind": "ucb"}, random_state=7)
algo = ConcurrencyLimiter(algo, max_concurrent=4)
search = BayesOptSearch(metric="mean_loss", mode="min")
limited = ConcurrencyLimiter(search, max_concurrent=4)
tuner = tune.Tuner(
    objective,
    tune_config=tune.TuneConfig(
        search_alg=limited, scheduler=AsyncHyperBandScheduler(), num_samples=100
    ),
    run_config=tune.RunConfig(name="my_exp"),
    param_space={"steps": 100, "width": tune.uniform(0, 20)},
)
if __name__ == "__main__":
    tuner.fit()

# is metric: mean_loss
# is mode: min
# is search: {name: gp}
# is scheduler: {name: asha, max_t: 100, reduction_factor: 4}
# is resources.concurrency: 4
# is budget.trials: 100
# says utility_kwargs
# says name='my_exp'
