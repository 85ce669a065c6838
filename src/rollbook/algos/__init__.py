"""The reference algorithms, one readable file each, made of pure functions.

What a file holds, ours or a user's (`rollbook train my_algo.py CartPole-v1`):

    LOOP = "on_policy"                                      which loop of rollbook.training runs it
    Config                                                  a frozen dataclass, see parts/fields.py; on_policy needs
                                                            num_envs, rollout_steps and gamma in it
    init(key, spaces, config) -> State                      a tree of arrays with a field `actor`, all that acting needs
    act(actor, observation, noise) -> action                noise=None: the best action instead of a sample
    update(state, rollout, progress, key, config) -> (State, metrics)
    inspect(state, rollout, config) -> metrics              optional: what verbosity debug shows, computed apart

An algorithm never sees an environment, a book or a clock.
"""
