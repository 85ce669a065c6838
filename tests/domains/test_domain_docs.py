"""The page of domains says what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gymnasium import spaces

from rollbook.domains import DOMAINS, make

PAGE = (Path(__file__).parents[2] / "docs" / "domains.md").read_text()
ROWS = {
    cells[0].strip("`"): cells[1:]
    for line in PAGE.splitlines()
    if re.match(r"\| `[\w-]+` \|(.*\|){5}$", line)
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}


def test_every_domain_has_a_row_and_every_row_is_a_domain() -> None:
    assert set(ROWS) == set(DOMAINS)


@pytest.mark.parametrize("name", DOMAINS)
def test_a_row_says_how_long_an_episode_is_and_how_many_numbers_are_seen_and_chosen(name: str) -> None:
    seen, _, action, _, steps = ROWS[name]
    env = make(DOMAINS[name])

    assert int(steps) == DOMAINS[name].max_episode_steps
    assert len(seen.split(",")) == env.observation_space.shape[0]
    if isinstance(env.action_space, spaces.Discrete):
        assert action == f"one of {env.action_space.n}"
    else:
        assert action.split(":")[0] == str(env.action_space.shape[0])


def test_a_domain_that_knows_success_says_what_it_is() -> None:
    for section in PAGE.split("\n## ")[1:]:
        names = [name for name in re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE) if name in DOMAINS]
        if "| hidden |" in section and any(DOMAINS[name].success_above is not None for name in names):
            assert "Success:" in section
