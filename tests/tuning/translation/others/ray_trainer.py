from ray import tune
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


def train_loop(config):
    pass


trainer = TorchTrainer(train_loop, scaling_config=ScalingConfig(num_workers=2))
tuner = tune.Tuner(
    trainer,
    param_space={"train_loop_config": {"lr": tune.loguniform(1e-4, 1e-1)}},
    tune_config=tune.TuneConfig(metric="val_loss", num_samples=4),
)
tuner.fit()

# is trainable: "?"
# is mode: "?"
# is space: {train_loop_config: {lr: {loguniform: [0.0001, 0.1]}}}
# says TorchTrainer
# says mode of the search (not given)
