"""LightGBM under Ray Train: boosting rounds on two workers, continued from a checkpoint."""

import lightgbm
import ray.data
import ray.train
import ray.train.lightgbm
from ray.train import ScalingConfig
from ray.train.lightgbm import LightGBMTrainer, RayTrainReportCallback
from sklearn.datasets import load_breast_cancer


def train_fn_per_worker(config):
    frames = [
        ray.train.get_dataset_shard(name).materialize().to_pandas() for name in ("train", "valid")
    ]
    train, valid = (
        lightgbm.Dataset(frame.drop("target", axis=1), label=frame["target"]) for frame in frames
    )
    model, rounds = None, config["num_boost_round"]
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        model = RayTrainReportCallback.get_model(checkpoint)
        rounds -= model.current_iteration()
    params = {
        "objective": "binary",
        "learning_rate": config["lr"],
        "num_threads": 1,
        "tree_learner": "data_parallel",
        "pre_partition": True,
        **ray.train.lightgbm.get_network_params(),
    }
    lightgbm.train(
        params,
        train,
        num_boost_round=rounds,
        valid_sets=[valid],
        valid_names=["valid"],
        init_model=model,
        callbacks=[RayTrainReportCallback(metrics=["valid-binary_logloss"], frequency=1)],
    )


def main(config):
    frame = load_breast_cancer(as_frame=True).frame
    frame.columns = [name.replace(" ", "_") for name in frame.columns]
    trainer = LightGBMTrainer(
        train_fn_per_worker,
        train_loop_config={"lr": config["lr"], "num_boost_round": 6},
        scaling_config=ScalingConfig(num_workers=2),
        datasets={
            "train": ray.data.from_pandas(frame[:400]),
            "valid": ray.data.from_pandas(frame[400:]),
        },
    )
    print(trainer.fit().metrics)


if __name__ == "__main__":
    main({"lr": 0.3})
