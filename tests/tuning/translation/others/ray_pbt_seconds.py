from ray import tune
from ray.tune.schedulers import PopulationBasedTraining


class Net(tune.Trainable):
    def step(self):
        return {"score": 1.0}


pbt = PopulationBasedTraining(perturbation_interval=30, hyperparam_mutations={"lr": lambda: 1})
tune.Tuner(
    Net,
    tune_config=tune.TuneConfig(metric="score", mode="max", scheduler=pbt, num_samples=8),
    param_space={"lr": tune.uniform(1e-2, 1e-5), "batch": 32},
).fit()

# is scheduler.name: "?"
# is space.lr: "?"
# is fixed: {batch: 32}
# says by time_total_s
# says perturbation_interval=30
# says hyperparam_mutations
# says lower < upper
