"""Observations and rewards on a common scale, by statistics of all that was seen.

The statistics of observations move between rollouts, never within one, so the policy that learns sees the numbers that
it acted on. (OpenAI's baselines move them at every step.) Rewards, which no policy sees, are scaled with the rollout at
hand in the statistics. Evaluation uses them as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rollbook.algos.parts.actor_critic import Rollout
from rollbook.algos.parts.networks import Array
from rollbook.algos.parts.running import Statistics, no_statistics, normalised, scaled, with_batch
from rollbook.algos.parts.spaces import Spaces
from rollbook.errors import UsageError


class Normaliser(NamedTuple):
    """A part that is switched off is None."""

    observations: Statistics | None
    returns: Statistics | None
    discounted_return: Any  # of each environment's episode so far

    def observe(self, observation: Any) -> Any:
        return observation if self.observations is None else normalised(self.observations, observation)

    def learn(self, rollout: Rollout, gamma: float) -> tuple[Normaliser, Rollout]:
        """The rollout as the algorithm is to see it, and the statistics with the rollout in them."""
        seen = rollout._replace(
            observation=self.observe(rollout.observation), next_observation=self.observe(rollout.next_observation)
        )
        new = self
        if self.observations is not None:
            members = rollout.observation.reshape(-1, *rollout.observation.shape[2:])
            new = new._replace(observations=with_batch(self.observations, members))
        if self.returns is not None:
            discounted, last = self._discounted_returns(rollout, gamma)
            returns = with_batch(self.returns, discounted.reshape(-1))
            new = new._replace(returns=returns, discounted_return=last)
            seen = seen._replace(reward=scaled(returns, rollout.reward))
        return new, seen

    def _discounted_returns(self, rollout: Rollout, gamma: float) -> tuple[Array, Array]:
        """Of the episode so far at every step, and after the last step: rewards of the past, the older the less."""

        def forwards(past: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            reward, done = step
            discounted = gamma * past + reward
            return jnp.where(done, 0.0, discounted), discounted

        done = rollout.terminated | rollout.truncated
        last, all_of_them = jax.lax.scan(forwards, self.discounted_return, (rollout.reward, done), unroll=8)
        return all_of_them, last


def make_normaliser(spaces: Spaces, config: Any) -> Normaliser:
    """As the configuration asks; an algorithm's that does not speak of it has none."""
    observations = getattr(config, "normalise_observations", False)
    rewards = getattr(config, "normalise_rewards", False)
    if observations and spaces.image:
        raise UsageError("normalise_observations is for vectors", "images are scaled by the network: leave it off")
    return Normaliser(
        no_statistics(spaces.observation) if observations else None,
        no_statistics(()) if rewards else None,
        jnp.zeros(config.num_envs) if rewards else None,
    )
