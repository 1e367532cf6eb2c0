from ray import tune


class Experiment:
    def __init__(self):
        self.space = {"x": tune.uniform(0, 1)}

    def train(self, config):
        tune.report({"loss": config["x"]})

    def run(self, n):
        config = tune.TuneConfig("loss", "min", num_samples=n)
        return tune.Tuner(self.train, param_space=self.space, tune_config=config).fit()


# is trainable: "?"
# is metric: "?"
# is mode: "?"
# is space: {"?": "?"}
# is search.name: "?"
# is scheduler.name: "?"
# is budget: {trials: "?", time: "?"}
# is resources.concurrency: "?"
# says self.train
# says self.space
# says tune.uniform(0, 1)
# says num_samples=n
# says 'loss' of TuneConfig
