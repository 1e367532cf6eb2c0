import argparse

from ray import tune
from ray.tune.schedulers import HyperBandForBOHB, HyperBandScheduler
from ray.tune.search.bohb import TuneBOHB

from models import train


def get_space():
    return {"lr": tune.loguniform(1e-5, 1e-1)}


def run(args):
    space = get_space()
    space["depth"] = tune.randint(1, 5)
    tune.run(
        train,
        config=space,
        metric="acc",
        mode=args.mode,
        scheduler=HyperBandForBOHB(max_t=100),
        search_alg=TuneBOHB(seed=1),
        **vars(args),
    )


def other():
    tune.run(train, scheduler=HyperBandScheduler())


# is trainable: models:train
# is metric: acc
# is mode: "?"
# is search.name: "?"
# is scheduler: {name: "?", max_t: "?"}
# is resources.concurrency: "?"
# is space: {"?": "?", depth: {randint: [1, 5]}}
# is budget: {trials: "?", time: "?"}
# says HyperBandForBOHB
# says seed=1
# says get_space()
# says mode=args.mode
# says vars(args)
# says a second search
