"""One seed's training as a tracked run: iterations, and between them logs, evaluations and checkpoints."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rollbook.book.growing import GrowingRows, SavedRows
from rollbook.errors import CorruptFile, TrainingFailed, UnknownAlgorithm, UnsuitableEnvironment, UsageError
from rollbook.track.run import Run, say
from rollbook.training import off_policy, on_policy, recurrent
from rollbook.training.carried import remembers
from rollbook.training.environments import Environment, find_environment
from rollbook.training.evaluate import Evaluation, Evaluator, host_policy
from rollbook.training.on_policy import Report
from rollbook.training.setup import Setup, load_algorithm
from rollbook.training.shares import ask_for_devices

_CALL_SECONDS = 0.5  # of a compiled call, so that progress, logs and Ctrl-C keep up
_INSPECTIONS = 100  # of a training at verbosity debug
OVERESTIMATION_METRICS = ("debug/expected_return", "debug/overestimation")
SUCCESS_METRICS = ("charts/success_rate", "eval/success_rate")  # of environments that know successes
_RETURNS_SHOWN = 20  # episodes that the return of the progress line is the mean of


@dataclass(frozen=True)
class Progress:
    """How far a seed has come, for whoever shows it."""

    seed: int
    step: int
    steps: int
    steps_per_second: float | None
    episodic_return: float | None
    compiling: bool = False
    compile_seconds: float | None = None


Tell = Callable[[Progress], None]


class Loop(Protocol):
    """Iterations of a rollout and what is learned from it, on the device or with host environments."""

    iterations: int
    steps_per_iteration: int
    most_at_once: int  # iterations of one call of advance

    @property
    def goes_on_within_episodes(self) -> bool: ...

    def reseed(self, seed: int) -> None: ...
    def start(self) -> Any: ...
    def compile(self, state: Any) -> float: ...
    def advance(self, state: Any, count: int) -> tuple[Any, Report]: ...
    def learner(self, state: Any) -> Any: ...
    def with_learner(self, state: Any, learner: Any) -> Any: ...
    def inspect(self, learner: Any) -> dict[str, float]: ...
    def to_tree(self, state: Any) -> Any: ...
    def from_tree(self, tree: Any) -> Any: ...


@runtime_checkable
class HasReplay(Protocol):
    """A loop with a memory that is saved by what is new in it."""

    def growing(self, state: Any) -> dict[str, GrowingRows]: ...
    def with_growing(self, state: Any, saved: Mapping[str, SavedRows]) -> Any: ...
    def value(self, learner: Any, observations: Any) -> Any: ...


@dataclass(frozen=True)
class Machine:
    """What is compiled once and serves all seeds of a setup."""

    algorithm: Any
    environment: Environment
    loop: Loop
    evaluator: Evaluator
    shares: int | None  # of a batch that are learned from at once; none: this loop knows no shares


def make_machine(setup: Setup) -> Machine:
    config = setup.config
    algorithm = load_algorithm(setup.algorithm)
    kind = getattr(algorithm, "LOOP", "on_policy")
    in_shares = kind != "on_policy" and getattr(algorithm, "SHARES", False)
    # Before the environment, which may use JAX.
    devices = ask_for_devices(setup.shares, setup.cores, config) if in_shares else 1
    environment = find_environment(setup.env, setup.backend, setup.max_episode_steps)
    _check_suitable(setup, algorithm, environment)
    if kind not in _LOOPS:
        hint = " or ".join(f'LOOP = "{one}"' for one in _LOOPS)
        raise UnknownAlgorithm(f"{setup.algorithm} asks for the loop {kind!r}", f"there is {hint}")
    steps_per_iteration, device_loop, host_loop = _LOOPS[kind]
    # Whole iterations: the last one may go a little beyond the steps that were asked for.
    iterations = -(-setup.steps // steps_per_iteration(config))
    shared = (algorithm, config, environment.spaces, setup.seed, iterations)
    loop: Any
    if environment.backend == "device":
        loop = device_loop(environment.on_device(config.num_envs), *shared)
    else:
        loop = host_loop(environment.on_host(config.num_envs, setup.seed), *shared)
    shares = loop.learn_in_shares(setup.shares, devices) if in_shares else None
    evaluator = Evaluator(algorithm, environment, setup.eval_episodes, setup.seed, getattr(config, "gamma", 1.0))
    if shares is None and (setup.shares or 1) > 1:
        raise UsageError(
            f"shares is {setup.shares}, and {setup.algorithm} on {setup.env} ({environment.backend}) learns in one",
            "leave out --shares",
        )
    return Machine(algorithm, environment, loop, evaluator, shares)


_LOOPS: Mapping[str, tuple[Callable[[Any], int], Any, Any]] = {
    "on_policy": (lambda config: config.num_envs * config.rollout_steps, on_policy.DeviceLoop, on_policy.HostLoop),
    "off_policy": (off_policy.steps_per_iteration, off_policy.DeviceLoop, off_policy.HostLoop),
    "recurrent": (recurrent.steps_per_iteration, recurrent.DeviceLoop, recurrent.HostLoop),
}


def _check_suitable(setup: Setup, algorithm: Any, environment: Environment) -> None:
    """An algorithm's file may say that it is for ACTIONS = "discrete" or "continuous", and not for IMAGES."""
    if setup.only and getattr(setup.config, "encoders", None) == "shared":
        raise UsageError(
            f"--only {setup.only} would part what a shared encoder ties together",
            "take both networks, or --set encoders=separate in both runs",
        )
    spaces = environment.spaces
    actions = "discrete" if spaces.discrete else "continuous"
    if getattr(algorithm, "ACTIONS", actions) != actions:
        raise UnsuitableEnvironment(
            f"{setup.algorithm} does not take {setup.env}, whose actions are {actions}",
            "dqn, c51 and qrdqn take discrete actions; ddpg, td3, sac, rdpg, rtd3 and rsac continuous ones; ppo both",
        )
    if spaces.image and not getattr(algorithm, "IMAGES", True):
        raise UnsuitableEnvironment(
            f"{setup.algorithm} does not take {setup.env}, whose observations are images",
            "ppo takes images with any actions; dqn, c51 and qrdqn with discrete ones",
        )


class Trainer:
    """A training that can be stopped between iterations, saved and gone on with."""

    def __init__(self, setup: Setup, machine: Machine, run: Run, tell: Tell) -> None:
        self.setup, self.machine, self.run, self.tell = setup, machine, run, tell
        self.loop = machine.loop
        self.loop.reseed(setup.seed)
        machine.evaluator.reseed(setup.seed)
        self._recent: list[float] = []
        self._stop = False
        self._replay_origin = ""  # rows of a replay that began empty in mid-run are others than those before
        self._at_once = 1  # iterations of the next call
        self._inspect_every = max(setup.steps // _INSPECTIONS, 1)

    def train(self) -> None:
        """From the run's starting point, if it has one, to the last step or the first Ctrl-C."""
        state, done = self._begin()
        if getattr(self.setup.config, "learning_starts", 0) > self.total_steps:
            waits = f"learning_starts is {self.setup.config.learning_starts:,} and there are {self.total_steps:,} steps"
            say(f"nothing will be learned: {waits}", always=True)
        seconds = self.loop.compile(state)
        self.tell(Progress(self.setup.seed, self._step(done), self.total_steps, None, None, compile_seconds=seconds))
        with self._stop_on_signals():
            while done < self.loop.iterations and not self._stop:
                count = self._until_next_event(done)
                began = time.perf_counter()
                state, report = self.loop.advance(state, count)
                seconds = time.perf_counter() - began
                rate = count * self.loop.steps_per_iteration / seconds
                self._at_once = max(round(count * _CALL_SECONDS / seconds), 1)
                done += count
                self._log(report, rate, self._step(done))
                self._after(state, done)
        if done < self.loop.iterations:
            self._save(state, done)
            self.run.finish("interrupted", f"stopped by Ctrl-C or SIGTERM at step {self._step(done)}")

    @property
    def total_steps(self) -> int:
        return self.loop.iterations * self.loop.steps_per_iteration

    def _begin(self) -> tuple[Any, int]:
        self.tell(Progress(self.setup.seed, 0, self.total_steps, None, None, compiling=True))
        state = self.loop.start()
        try:
            found = self.run.starting_point(like=self.loop.to_tree(state))
        except UsageError as error:
            raise UsageError(
                f"the checkpoint does not fit: {error.message}",
                "go on with as many environments, and with networks of the sizes and kinds that it was saved with",
            ) from error
        if found is None:
            return self._with_weights_of_another(state), 0
        self._say_what_is_not_exact(found.extra)
        state = self._with_replay(self.loop.from_tree(found.tensors), found.growing)
        return state, int(found.extra["iterations"])

    def _with_replay(self, state: Any, saved: Mapping[str, SavedRows]) -> Any:
        if not isinstance(self.loop, HasReplay):
            return state
        try:
            if saved:
                state = self.loop.with_growing(state, saved)
                self._replay_origin = next(iter(saved.values())).origin
                return state
            why = "was not saved"
        except CorruptFile as error:
            why = f"cannot be read ({error.message})"
        say(
            f"the replay {why}: it begins empty, and learning waits until it has as many steps as it first waited for",
            always=True,
        )
        self._replay_origin = secrets.token_hex(4)
        return state

    def _with_weights_of_another(self, state: Any) -> Any:
        if self.setup.init_from is None:
            return state
        from rollbook.training.policies import with_weights

        learner = with_weights(self.loop.learner(state), self.run.book, self.setup.init_from, self.setup.only)
        return self.loop.with_learner(state, learner)

    def _say_what_is_not_exact(self, saved: Any) -> None:
        if not self.loop.goes_on_within_episodes:
            say(f"{self.setup.env} cannot be saved within an episode: its episodes begin anew", always=True)
        if saved["cores"] != (cores := len(os.sched_getaffinity(0))):
            say(f"saved on {saved['cores']} cores, going on with {cores}: the last bits may differ", always=True)

    def _after(self, state: Any, done: int) -> None:
        """What is due at the end of an iteration. The checkpoint comes last: all that was logged before is in it."""
        last = done == self.loop.iterations
        if self._due(self._inspect_every, done):
            self.run.log(lambda: self.loop.inspect(self.loop.learner(state)), self._step(done), "debug")
        if self._due(self.setup.eval_every, done) or (last and self.setup.eval_every):
            self._evaluate(state, done)
        if last or self._due(self.setup.checkpoint_every, done):
            self._save(state, done)

    def _due(self, every: int, done: int) -> bool:
        """Whether the last iteration reached or passed a multiple of `every` steps."""
        return every > 0 and self._step(done) // every > self._step(done - 1) // every

    def _until_next_event(self, done: int) -> int:
        count = min(self._at_once, self.loop.most_at_once, self.loop.iterations - done)
        for every in (self.setup.eval_every, self.setup.checkpoint_every, self._inspect_every):
            if every:
                next_event = (self._step(done) // every + 1) * every
                count = min(count, -(-(next_event - self._step(done)) // self.loop.steps_per_iteration))
        return count

    def _step(self, iterations: int) -> int:
        return iterations * self.loop.steps_per_iteration

    def _log(self, report: Report, rate: float, reached: int) -> None:
        for step, total, length in zip(
            report.episode_steps.tolist(), report.episode_returns.tolist(), report.episode_lengths.tolist(), strict=True
        ):
            self.run.log({"charts/episodic_return": total, "charts/episodic_length": length}, step, "essential")
            self._log_success(SUCCESS_METRICS[0], total, step)
        names = {level: [name for name in report.metrics if _level(name) == level] for level in ("info", "debug")}
        columns = {name: values.tolist() for name, values in report.metrics.items()}
        for number, step in enumerate(report.metric_steps):
            for level, chosen in names.items():
                self.run.log({name: columns[name][number] for name in chosen}, step, level)  # type: ignore[arg-type]
        self.run.log({"charts/SPS": rate}, reached, "essential")
        self._check_finite(report)
        self._recent = [*self._recent, *report.episode_returns.tolist()][-_RETURNS_SHOWN:]
        shown = float(np.mean(self._recent)) if self._recent else None
        self.tell(Progress(self.setup.seed, reached, self.total_steps, rate, shown))

    def _log_success(self, name: str, returns: Any, step: int) -> None:
        """While training of each episode, 1 or 0: a mean over some would begin anew where a run is resumed."""
        above = self.machine.environment.success_above
        if above is not None:
            self.run.log({name: float(np.mean(returns > above))}, step, "essential")

    def _check_finite(self, report: Report) -> None:
        for name, values in report.metrics.items():
            if name.startswith("losses/") and not np.isfinite(values).all():
                number = int(np.flatnonzero(~np.isfinite(values))[0])
                raise TrainingFailed(
                    f"{name} is {values[number]} at step {report.metric_steps[number]}",
                    "the checkpoints before it are kept; a smaller learning rate or max_grad_norm often helps",
                )

    def _evaluate(self, state: Any, done: int) -> None:
        learner = self.loop.learner(state)
        found = self.machine.evaluator(learner.algorithm.actor, learner.normaliser, self._step(done))
        self.run.log(
            {"eval/return": float(found.returns.mean()), "eval/length": float(found.lengths.mean())},
            self._step(done),
            "essential",
        )
        self._log_success(SUCCESS_METRICS[1], found.returns, self._step(done))
        if isinstance(self.loop, HasReplay):
            self.run.log(lambda: self._overestimation(learner, found), self._step(done), "debug")
        if self.setup.capture_video:
            self._capture(learner, self._step(done))

    def _overestimation(self, learner: Any, found: Evaluation) -> dict[str, float]:
        """What the critics expected at the beginnings of the episodes, and how much more that is than what came.

        A time limit is not the end of the task: what they expect after one counts as if it had come. With a memory it
        does not, since the critics' own was not carried along.
        """
        assert isinstance(self.loop, HasReplay)
        expected = self.loop.value(learner, found.first_observations)
        if expected is None:
            return {}
        came = found.discounted
        if not remembers(self.machine.algorithm):
            ahead = self.loop.value(learner, found.last_observations)
            came = came + np.where(found.truncated, self.machine.evaluator.gamma**found.lengths * ahead, 0.0)
        figures = float(expected.mean()), float((expected - came).mean())
        return dict(zip(OVERESTIMATION_METRICS, figures, strict=True))

    def _capture(self, learner: Any, step: int) -> None:
        from rollbook.training.videos import record_episode

        machine = self.machine
        act = host_policy(machine.algorithm, machine.environment, learner.algorithm.actor, learner.normaliser)
        frames, fps, _, _ = record_episode(machine.environment, act, self.setup.seed)
        self.run.video("rollout", frames, fps, step)

    def _save(self, state: Any, done: int) -> None:
        extra = {"iterations": done, "cores": len(os.sched_getaffinity(0))}
        replay = None
        if isinstance(self.loop, HasReplay) and not self.setup.no_save_replay:
            growing = self.loop.growing(state).items()
            replay = {name: dataclasses.replace(rows, origin=self._replay_origin) for name, rows in growing}
        self.run.checkpoint(
            self._step(done), self.loop.to_tree(state), extra, keep=self.setup.keep_checkpoints, growing=replay
        )

    @contextlib.contextmanager
    def _stop_on_signals(self) -> Iterator[None]:
        """The first Ctrl-C or SIGTERM ends the training after the iteration at hand; the second ends it at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def stop(number: int, _: Any) -> None:
            self._stop = True
            signal.signal(number, before[signal.Signals(number)])

        for number in before:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _level(name: str) -> str:
    return "debug" if name.startswith("debug/") else "info"
