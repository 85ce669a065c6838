"""How fast algorithms with a memory train: Rollbook beside skrl's recurrent agents, offpcc and plain torch.

The work is that of offpcc: whole episodes of 200 steps through LSTMs of 256 units, 10 episodes an update, an update a
step. Actor and critics have encoders of their own. skrl's sequences may begin anywhere; it is spared looking for ends
of episodes within them. Of offpcc, from a checkout of it, its algorithms, replay and acting are used as they are. Torch
is `nn.LSTM` and autograd with nothing around them but a replay: what one would write.

    peers/bin/pip install torch==2.13.0 skrl gymnasium gin-config
    python benchmarks/recurrent.py --peers peers/bin/python --offpcc ../offpcc --write
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report import Target, ask_worker, document, publish, table, target_table, three_digits

UNITS, EPISODES, LENGTH = 256, 10, 200
START = EPISODES * LENGTH  # steps before the first update
UPDATES = 40
ALGORITHMS = {"rsac": "sac", "rtd3": "td3"}
TIMES = 1.5  # as fast as each library that offers these algorithms
LIBRARIES = ("rollbook", "skrl", "offpcc", "torch")


# ---- workers: one training each, in a process of its own -------------------------------------------------------------


def train_rollbook(algo: str, folder: Path) -> dict[str, float]:
    os.environ["ROLLBOOK_QUIET"] = "1"
    learning = our_rate(algo, folder, START, START + UPDATES + 10)
    acting = our_rate(algo, folder, 10 * START, 5 * START)
    return {"steps_per_second": learning, "acting_ms": 1000 / acting}


def our_rate(algo: str, folder: Path, learning_starts: int, steps: int) -> float:
    """Steps a second from the first report after START to the last."""
    from rollbook.training.train import Labels, make_setup, train_one

    config = {
        "sequences": "episodes", "sequence_length": LENGTH, "batch_size": EPISODES, "units": UNITS,
        "hidden_sizes": (UNITS,), "train_every": 1, "updates_per_step": 1.0, "learning_starts": learning_starts,
        "buffer_size": 10 * START, "log_every": 10,
    }  # fmt: skip
    setup = make_setup(
        algo, "pendulum-p-v0", steps=steps, preset="none", sources=[config], eval_every=0, checkpoint_every=0,
        no_save_replay=True, cores=len(os.sched_getaffinity(0)),
    )  # fmt: skip
    seen: list[tuple[int, float]] = []

    def tell(progress: Any) -> None:
        if progress.compile_seconds is None and not progress.compiling and progress.step > START:
            seen.append((progress.step, time.perf_counter()))

    train_one(setup, Labels(task="speed"), str(folder / "book"), tell)
    return (seen[-1][0] - seen[0][0]) / (seen[-1][1] - seen[0][1])


def pendulum_without_velocity() -> Any:
    import gymnasium
    import numpy as np

    class Positions(gymnasium.ObservationWrapper[Any, Any, Any]):
        def __init__(self) -> None:
            super().__init__(gymnasium.make("Pendulum-v1"))
            self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

        def observation(self, observation: Any) -> Any:
            return observation[:2]

    return Positions()


def train_skrl(algo: str) -> dict[str, float]:
    import importlib

    import torch
    from torch import nn

    wrap_env = importlib.import_module("skrl.envs.wrappers.torch").wrap_env
    models = importlib.import_module("skrl.models.torch")
    memory_of = importlib.import_module("skrl.memories.torch").RandomMemory
    package = importlib.import_module(f"skrl.agents.torch.{ALGORITHMS[algo]}")
    name = ALGORITHMS[algo].upper()
    env = wrap_env(pendulum_without_velocity())
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": "cpu"}

    class Recurrent(models.Model):  # type: ignore[name-defined, misc]
        def make_layers(self, inputs: int, outputs: int) -> None:
            self.lstm = nn.LSTM(2, UNITS, batch_first=True)
            self.net = nn.Sequential(nn.Linear(UNITS + inputs, UNITS), nn.ReLU(), nn.Linear(UNITS, outputs))

        def get_specification(self) -> Any:
            size = (1, 1, UNITS)
            return {"rnn": {"sequence_length": LENGTH, "sizes": [size, size]}}

        def features(self, inputs: Any) -> tuple[Any, Any]:
            observations = inputs["observations"]
            steps = LENGTH if self.training else 1
            hidden, cell = inputs["rnn"]
            if self.training:
                hidden, cell = (x.view(1, -1, steps, UNITS)[:, :, 0].contiguous() for x in (hidden, cell))
            output, state = self.lstm(observations.view(-1, steps, observations.shape[-1]), (hidden, cell))
            return output.flatten(0, 1), list(state)

    class GaussianActor(models.GaussianMixin, Recurrent):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            Recurrent.__init__(self, **spaces)
            models.GaussianMixin.__init__(self, clip_actions=True)
            self.make_layers(0, 1)
            self.log_std = nn.Parameter(torch.zeros(1))

        def compute(self, inputs: Any, role: str = "") -> Any:  # noqa: ARG002 - skrl names it
            features, state = self.features(inputs)
            return torch.tanh(self.net(features)), {"log_std": self.log_std, "rnn": state}

    class Deterministic(models.DeterministicMixin, Recurrent):  # type: ignore[name-defined, misc]
        def __init__(self, actions: int) -> None:
            Recurrent.__init__(self, **spaces)
            models.DeterministicMixin.__init__(self)
            self.make_layers(actions, 1)

        def compute(self, inputs: Any, role: str = "") -> Any:
            features, state = self.features(inputs)
            if "critic" in role:
                return self.net(torch.cat([features, inputs["taken_actions"]], dim=1)), {"rnn": state}
            return torch.tanh(self.net(features)), {"rnn": state}

    networks = {key: Deterministic(1) for key in ("critic_1", "critic_2", "target_critic_1", "target_critic_2")}
    networks["policy"] = GaussianActor() if algo == "rsac" else Deterministic(0)
    options: dict[str, Any] = {"batch_size": EPISODES, "learning_starts": START}
    if algo == "rtd3":
        networks["target_policy"] = Deterministic(0)
        noise = importlib.import_module("skrl.resources.noises.torch").GaussianNoise
        options |= {"smooth_regularization_noise": noise, "smooth_regularization_noise_kwargs": {"mean": 0, "std": 0.2}}
    agent = getattr(package, f"{name}_RNN")(
        models=networks, memory=memory_of(memory_size=10 * START, num_envs=1, device="cpu"),
        cfg=getattr(package, f"{name}_CFG")(**options), **spaces,
    )  # fmt: skip
    agent.init()
    agent.enable_training_mode(True)
    observations, _ = env.reset()
    steps = START + UPDATES
    began = 0.0
    for step in range(steps):
        if step == START + 2:
            began = time.perf_counter()
        with torch.no_grad():
            actions, _ = agent.act(observations, None, timestep=step, timesteps=steps)
            following, rewards, terminated, truncated, infos = env.step(actions)
            agent.record_transition(
                observations=observations, states=None, actions=actions, rewards=rewards, next_observations=following,
                next_states=None, terminated=terminated, truncated=truncated, infos=infos, timestep=step,
                timesteps=steps,
            )  # fmt: skip
        agent.post_interaction(timestep=step, timesteps=steps)
        observations = env.reset()[0] if (terminated | truncated).any() else following
    return {"steps_per_second": (UPDATES - 2) / (time.perf_counter() - began)}


def train_offpcc(algo: str, checkout: Path) -> dict[str, float]:
    """Its algorithms, replay and way of acting; its own loop needs a tracker's account and a Gym that is gone."""
    import importlib
    import types

    import numpy as np

    sys.path.insert(0, str(checkout / "offpcc"))
    sys.modules["kornia"] = types.ModuleType("kornia")  # for images, which are not used here
    gin = importlib.import_module("gin")
    name = "RecurrentSAC" if algo == "rsac" else "RecurrentTD3"
    algorithms = importlib.import_module("algorithms_recurrent")
    replay_of = importlib.import_module("basics.replay_buffer_recurrent").RecurrentReplayBuffer
    gin.bind_parameter("basics.summarizer.Summarizer.num_layers", 1)
    gin.bind_parameter("basics.actors_and_critics.make_MLP.hidden_dimensions", (UNITS,))
    agent = getattr(algorithms, name)(input_dim=2, action_dim=1, hidden_dim=UNITS)
    replay = replay_of(o_dim=2, a_dim=1, max_episode_len=LENGTH, capacity=10 * EPISODES, batch_size=EPISODES)
    env = pendulum_without_velocity()
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=1)
    began = 0.0
    for step in range(START + UPDATES):
        if step == START + 2:
            began = time.perf_counter()
        learning = step >= START
        action = agent.act(observation, deterministic=False) if learning else rng.uniform(-1, 1, 1)
        following, reward, terminated, truncated, _ = env.step(2 * action)
        replay.push(observation, action, reward, following, terminated, truncated)
        observation = following
        if truncated:
            observation, _ = env.reset()
            agent.reinitialize_hidden()
        if learning:
            agent.update_networks(replay.sample())
    return {"steps_per_second": (UPDATES - 2) / (time.perf_counter() - began)}


def train_torch(algo: str) -> dict[str, float]:
    import torch
    from torch import nn

    class Network(nn.Module):  # type: ignore[misc]
        """An encoder of observations and previous actions, and what follows it."""

        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.lstm = nn.LSTM(3, UNITS, batch_first=True)
            self.net = nn.Sequential(nn.Linear(UNITS + inputs, UNITS), nn.ReLU(), nn.Linear(UNITS, outputs))

        def forward(self, seen: Any, action: Any = None, memory: Any = None) -> tuple[Any, Any]:
            features, memory = self.lstm(seen, memory)
            return self.net(features if action is None else torch.cat([features, action], -1)), memory

    soft = algo == "rsac"
    actor, critics = Network(0, 2 if soft else 1), nn.ModuleList([Network(1, 1), Network(1, 1)])
    target_actor, target_critics = copy.deepcopy(actor), copy.deepcopy(critics)
    log_alpha = torch.zeros(1, requires_grad=True)
    optimizers = [torch.optim.Adam(part, lr=3e-4) for part in (actor.parameters(), critics.parameters(), [log_alpha])]

    def sample(network: Any, seen: Any) -> tuple[Any, Any]:
        output, _ = network(seen)
        if not soft:
            return torch.tanh(output), torch.zeros_like(output)
        mean, log_std = output.chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        raw = normal.rsample()
        squash = 2 * (0.6931 - raw - nn.functional.softplus(-2 * raw))
        return torch.tanh(raw), normal.log_prob(raw) - squash

    def least(networks: Any, seen: Any, action: Any) -> Any:
        return torch.min(*(network(seen, action)[0] for network in networks))

    def step_of(optimizer: Any, loss: Any) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def update(number: int, episodes: list[Any]) -> None:
        seen, actions, rewards = (torch.stack(parts) for parts in zip(*episodes, strict=True))
        now, alpha = seen[:, :-1], log_alpha.exp().detach()
        with torch.no_grad():
            action, log_prob = sample(actor if soft else target_actor, seen)
            if not soft:
                action = (action + (0.2 * torch.randn_like(action)).clamp(-0.5, 0.5)).clamp(-1, 1)
            value = (least(target_critics, seen, action) - alpha * log_prob)[:, 1:]
            target = rewards + 0.99 * value
        loss = sum(((critic(now, actions)[0] - target) ** 2).mean() for critic in critics)
        step_of(optimizers[1], loss)
        if soft or number % 2 == 0:
            action, log_prob = sample(actor, now)
            value = least(critics, now, action) if soft else critics[0](now, action)[0]
            step_of(optimizers[0], (alpha * log_prob - value).mean())
        if soft:
            step_of(optimizers[2], -(log_alpha.exp() * (log_prob.detach() - 1)).mean())
        with torch.no_grad():
            pairs = [(target_critics, critics), *([] if soft else [(target_actor, actor)])]
            for slow, fast in pairs:
                for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
                    old.lerp_(new, 0.005)

    env = pendulum_without_velocity()
    replay: list[Any] = []
    began, made, memory = 0.0, 0, None
    observation, _ = env.reset(seed=1)
    rows: list[Any] = [torch.tensor([*observation, 0.0])]
    actions: list[Any] = []
    rewards: list[float] = []
    while made < UPDATES:
        with torch.no_grad():
            output, memory = actor(rows[-1][None, None], None, memory)
        action = float(torch.tanh(output[0, 0, 0])) if len(replay) >= EPISODES else 2 * torch.rand(1).item() - 1
        observation, reward, _, truncated, _ = env.step([2 * action])
        rows.append(torch.tensor([*observation, action]))
        actions.append(action)
        rewards.append(float(reward))
        if truncated:
            replay.append((torch.stack(rows), torch.tensor(actions)[:, None], torch.tensor(rewards)[:, None]))
            observation, _ = env.reset()
            rows, actions, rewards, memory = [torch.tensor([*observation, 0.0])], [], [], None
        if len(replay) >= EPISODES:
            if made == 2:
                began = time.perf_counter()
            chosen = torch.randint(len(replay), (EPISODES,)).tolist()
            update(made, [replay[number] for number in chosen])
            made += 1
    return {"steps_per_second": (UPDATES - 2) / (time.perf_counter() - began)}


# ---- the parent process ----------------------------------------------------------------------------------------------


def measure(library: str, algo: str, threads: int, options: Any) -> dict[str, float]:
    python = sys.executable if library == "rollbook" else options.peers
    command = [python, __file__, "--worker", library, "--algo", algo, "--offpcc", str(options.offpcc)]
    return ask_worker(command, threads, f"{library} on {algo}")


def measure_in_turns(algo: str, options: Any) -> dict[str, dict[str, float]]:
    """The best of as many tries of each, taken in turns; peers with one thread and with all."""
    tries: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for threads in (1, os.cpu_count() or 1):
            for library in LIBRARIES:
                print(f"measuring {algo}: {library}", file=sys.stderr)
                tries.setdefault(library, []).append(measure(library, algo, threads, options))
    return {library: max(answers, key=lambda answer: answer["steps_per_second"]) for library, answers in tries.items()}


NOTES = f"""Batches of {EPISODES} episodes of {LENGTH} steps, LSTMs of {UNITS} units, one update a step, both cores.
*steps/s* are environment steps with their updates. Ours is the whole product, in a book. *Without updates* is what is
left of our step when nothing is learned: acting, the environment and the replay. What we promise is about libraries
that offer these algorithms; plain torch is beside them to be seen. One round is noisy, and
peers seem to depend on how soon two cores hear of each other: of four measurements on two machines, RTD3 was 1.67, 1.72
and 1.74 times as fast as skrl, and once, when skrl with two threads made 16.2 steps/s, 1.36 times."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", metavar="PYTHON", help="of an environment with torch, skrl, gin and gymnasium")
    parser.add_argument("--offpcc", type=Path, metavar="PATH", help="a checkout of offpcc, run by --peers")
    parser.add_argument("--rounds", type=int, default=2, help="tries of every library with every number of threads")
    parser.add_argument("--write", action="store_true", help="save benchmarks/results/recurrent.md")
    parser.add_argument("--worker", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--algo", choices=[*ALGORITHMS], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(answer_as_worker(options.worker, options.algo, options.offpcc)), flush=True)
        return
    if not (options.peers and options.offpcc):
        parser.error("--peers and --offpcc are needed: there is nothing to compare with")
    rows, targets = [], []
    for algo in ALGORITHMS:
        results = measure_in_turns(algo, options)
        ours = results["rollbook"]
        for library, result in results.items():
            times = ours["steps_per_second"] / result["steps_per_second"]
            share = (
                "" if library != "rollbook" else f"{ours['acting_ms']:.2f} of {1000 / ours['steps_per_second']:.0f} ms"
            )
            rows.append([algo, library, three_digits(result["steps_per_second"]), f"{times:.2f}", share])
            if library in ("skrl", "offpcc"):
                figure = f"{algo}: times as fast as {library}"
                targets.append(Target(figure=figure, limit=TIMES, measured=times, unit="x", at_least=True))
    header = ["algorithm", "library", "steps/s", "ours, times as fast", "without updates"]
    text = document(
        "How fast training with a memory is", ["jax", "gymnasium"], [table(header, rows), NOTES, target_table(targets)]
    )
    publish("recurrent", text, write=options.write)


def answer_as_worker(library: str, algo: str, offpcc: Path) -> dict[str, float]:
    if library == "rollbook":
        with tempfile.TemporaryDirectory(prefix="rollbook-") as folder:
            return train_rollbook(algo, Path(folder))
    if library == "offpcc":
        return train_offpcc(algo, offpcc)
    return train_skrl(algo) if library == "skrl" else train_torch(algo)


if __name__ == "__main__":
    main()
