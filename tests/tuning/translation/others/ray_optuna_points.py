from ray import tune
from ray.tune.schedulers import MedianStoppingRule
from ray.tune.search.optuna import OptunaSearch

POINTS = [{"width": 1, "layers": [8, 8]}, {"width": 2}]
defaults = {"momentum": tune.uniform(0, 1)}
space = {
    "width": tune.randint(1, 100),
    "layers": tune.choice([[8, 8], [16]]),
    "act": "relu",
    **defaults,
}


class Trainer(tune.Trainable):
    def step(self):
        return {"score": self.config["width"]}


if __name__ == "__main__":
    tuner = tune.Tuner(
        Trainer,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            search_alg=OptunaSearch(points_to_evaluate=POINTS, seed=3),
            scheduler=MedianStoppingRule(
                time_attr="training_iteration", grace_period=5, hard_stop=False
            ),
            num_samples=30,
            max_concurrent_trials=2,
            time_budget_s=3600,
        ),
        run_config=tune.RunConfig(stop={"training_iteration": 20}),
    )
    tuner.fit()

# is space: {width: {randint: [1, 100]}, layers: {choice: [[8, 8], [16]]}, momentum: {uniform: [0, 1]}}
# is fixed: {act: relu}
# is points: [{width: 1, layers: [8, 8]}, {width: 2}]
# is search: {name: tpe}
# is seed: 3
# is scheduler: {name: median, grace_period: 5, max_t: 20}
# is budget: {trials: 30, time: 3600}
# is resources.concurrency: 2
# says hard_stop=False
