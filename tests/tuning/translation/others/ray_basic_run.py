import ray
from ray import tune


def easy_objective(config):
    for step in range(config["steps"]):
        tune.report({"mean_loss": config["width"] + config["height"] + len(config["activation"])})


if __name__ == "__main__":
    ray.init(num_cpus=4)
    analysis = tune.run(
        easy_objective,
        metric="mean_loss",
        mode="min",
        num_samples=5,
        verbose=1,
        config={
            "steps": 5,
            "width": tune.uniform(0, 20),
            "height": tune.quniform(-100, 100, q=10),
            "activation": tune.grid_search(["relu", "tanh"]),
        },
    )
    print(analysis.best_config)

# is trainable: ray_basic_run.py:easy_objective
# is space: {width: {uniform: [0, 20]}, height: {quniform: [-100, 100, 10]}, activation: {grid_search: [relu, tanh]}}
# is fixed: {steps: 5}
# is budget.trials: 10
# is scheduler: {name: none}
# says ray.init(num_cpus=4)
# says verbose=1
