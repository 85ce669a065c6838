"""The reference algorithms, one readable file each, made of pure functions.

What a file holds, ours or a user's (`rollbook train my_algo.py CartPole-v1`):

    LOOP = "on_policy"                                      which loop of rollbook.training runs it
    ACTIONS = "discrete"                                    or "continuous": optional, if it does not take both
    IMAGES = False                                          optional, if it takes only vectors
    Config                                                  a frozen dataclass, see parts/fields.py; on_policy needs
                                                            num_envs, rollout_steps and gamma in it
    init(key, spaces, config) -> State                      a tree of arrays with a field `actor`, all that acting needs
    act(actor, observation, noise) -> action                noise=None: the best action instead of a sample
    update(state, rollout, progress, key, config) -> (State, metrics)
    inspect(state, rollout, config) -> metrics              optional: what verbosity debug shows, computed apart

With LOOP = "off_policy", which learns from a replay of past steps:

    Config                                                  needs what parts/schedule.py reads, and batch_size, gamma
                                                            and hold_random_actions
    explore(key, progress, spaces, config) -> noise         that `act` takes, for an array of any shape of how much of
                                                            the training is done
    update(state, batch, key, config) -> (State, metrics)   a batch as in parts/replay.py
    SHARES = True                                           optional: several cores may learn from shares of a batch,
                                                            since each step of an optimizer is parts/descent.py's
    inspect(state, batch, key, config) -> metrics           optional
    value(state, observation) -> value                      optional: what is expected of the best action

With LOOP = "recurrent", which learns from sequences of past steps, the same but for:

    Config                                                  needs what parts/sequences.py and parts/recurrent.py read
    act(actor, seen, memory, noise) -> (action, memory)     `seen` as in parts/sequences.py; the actor has an `encoder`
    update(state, sequences, key, config) -> (State, metrics)

An algorithm never sees an environment, a book or a clock.
"""
