from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig

config = PPOConfig().environment("CartPole-v1").training(lr=tune.grid_search([0.01, 0.001]))
tuner = tune.Tuner(
    "PPO", param_space=config, run_config=tune.RunConfig(stop=lambda t, r: r["x"] > 1)
)
tuner.fit()

# is trainable: "?"
# is metric: "?"
# is mode: "?"
# is space: {"?": "?"}
# is scheduler.max_t: "?"
# says 'PPO'
# says PPOConfig
# says stop=lambda
