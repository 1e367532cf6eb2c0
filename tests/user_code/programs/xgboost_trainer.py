"""XGBoost under Ray Train: boosting rounds on two workers, continued from a checkpoint."""

import ray.data
import ray.train
import xgboost
from ray.train import ScalingConfig
from ray.train.xgboost import RayTrainReportCallback, XGBoostTrainer
from sklearn.datasets import load_breast_cancer


def train_fn_per_worker(config):
    frames = [
        ray.train.get_dataset_shard(name).materialize().to_pandas() for name in ("train", "valid")
    ]
    dtrain, dvalid = (
        xgboost.DMatrix(frame.drop("target", axis=1), label=frame["target"]) for frame in frames
    )
    model, rounds = None, config["num_boost_round"]
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        model = RayTrainReportCallback.get_model(checkpoint)
        rounds -= model.num_boosted_rounds()
    params = {"objective": "binary:logistic", "tree_method": "hist", "nthread": 1}
    xgboost.train(
        {**params, "eta": config["eta"], "max_depth": 3},
        dtrain,
        num_boost_round=rounds,
        evals=[(dvalid, "valid")],
        xgb_model=model,
        callbacks=[RayTrainReportCallback(metrics=["valid-logloss"], frequency=1)],
    )


def main(config):
    frame = load_breast_cancer(as_frame=True).frame
    train = ray.data.from_pandas(frame[:400])
    valid = ray.data.from_pandas(frame[400:])
    trainer = XGBoostTrainer(
        train_fn_per_worker,
        train_loop_config={"eta": config["eta"], "num_boost_round": 6},
        scaling_config=ScalingConfig(num_workers=2),
        datasets={"train": train, "valid": valid},
    )
    result = trainer.fit()
    print(result.metrics)


if __name__ == "__main__":
    main({"eta": 0.3})
