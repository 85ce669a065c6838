"""The table of domains, which is read without JAX or Gymnasium."""

from __future__ import annotations

import subprocess
import sys

import jax
import numpy as np
import pytest

from rollbook.domains import DOMAINS, Domain, find, make


def in_a_fresh_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_reading_the_table_imports_neither_jax_nor_gymnasium() -> None:
    code = """
import sys, rollbook.domains as domains
domains.find("rollbook/CartPole-v1").env_id
print(sorted({"jax", "gymnasium", "PIL"} & set(sys.modules)))
"""
    assert in_a_fresh_process(code) == "[]"


def test_a_domain_is_keyed_by_its_own_name() -> None:
    assert all(domain.name == name for name, domain in DOMAINS.items())


@pytest.mark.parametrize("name", DOMAINS)
def test_a_domain_is_found_by_its_name_and_by_its_gymnasium_id(name: str) -> None:
    assert find(name) is DOMAINS[name]
    assert find(f"rollbook/{name}") is DOMAINS[name]
    assert DOMAINS[name].env_id == f"rollbook/{name}"


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "phys2d/CartPole-v1", "CartPole-v0", "CartPole", ""])
def test_somebody_elses_environment_is_not_ours(env_id: str) -> None:
    assert find(env_id) is None


def test_options_replace_the_constants_of_one_instance() -> None:
    plain = DOMAINS["CartPole-v1"]
    moon = Domain(name="moon", entry_point=plain.entry_point, max_episode_steps=500, options={"gravity": 1.62})
    state, key = np.array([0, 0, 0.1, 0], np.float32), jax.random.key(0)

    spins = [float(make(domain).transition(state, 1, key)[3]) for domain in (plain, moon, plain)]

    assert spins[0] == spins[2]
    assert spins[1] < spins[0]
