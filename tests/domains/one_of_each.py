"""A domain of each class: what differs among domains of one class is only what is seen, and how long."""

from __future__ import annotations

from rollbook.domains import DOMAINS

ONE_OF_EACH = list({domain.entry_point: name for name, domain in reversed(DOMAINS.items())}.values())
