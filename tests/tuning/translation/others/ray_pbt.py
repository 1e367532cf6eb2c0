from ray import tune
from ray.tune.schedulers import PopulationBasedTraining

perturbation_interval = 5
scheduler = PopulationBasedTraining(
    time_attr="training_iteration",
    perturbation_interval=perturbation_interval,
    metric="mean_accuracy",
    mode="max",
    hyperparam_mutations={"lr": tune.uniform(0.0001, 1), "momentum": [0.8, 0.9, 0.99]},
)


class Net(tune.Trainable):
    def step(self):
        return {"mean_accuracy": self.config["lr"] * self.config["momentum"]}

    def save_checkpoint(self, checkpoint_dir):
        return {"lr": self.config["lr"]}

    def load_checkpoint(self, checkpoint):
        pass


tuner = tune.Tuner(
    Net,
    run_config=tune.RunConfig(
        name="pbt_test", stop={"mean_accuracy": 0.96, "training_iteration": 50}
    ),
    tune_config=tune.TuneConfig(scheduler=scheduler, num_samples=4),
    param_space={"lr": tune.uniform(0.001, 1), "momentum": tune.uniform(0.1, 0.9)},
)
if __name__ == "__main__":
    results_grid = tuner.fit()

# is mode: max
# is scheduler: {name: pbt, interval: 5, mutate: [lr, momentum], max_t: 50}
# is budget.trials: 4
# says stop={'mean_accuracy': 0.96}
# says [0.8, 0.9, 0.99]
# says name='pbt_test'
