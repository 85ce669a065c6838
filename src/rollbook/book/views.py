"""The SQL views of a book: their columns as documented, and their definitions over the catalogue's tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    about: str
    columns: dict[str, str]  # name -> "TYPE: what it is"
    sql: str


# Behind the views: cached.<table> unites settled runs (files) with active ones (memory); cached.changes comes from the
# journal: run_id, tags (all tags now), notes (added later), hidden.
VIEWS: dict[str, View] = {
    "runs": View(
        "Every run that is neither deleted nor archived.",
        {
            "run_id": "VARCHAR: date-time, host and random",
            "name": "VARCHAR: the id with algo, env and the tracked hyper-parameters",
            "task": "VARCHAR",
            "algo": "VARCHAR: from the config, by the alias table",
            "env": "VARCHAR: from the config, by the alias table",
            "seed": "BIGINT: from the config, by the alias table",
            "status": "VARCHAR: running, finished, failed, interrupted or lost",
            "benchmark": "VARCHAR: id of the benchmark that launched it",
            "started_at": "TIMESTAMP: UTC",
            "finished_at": "TIMESTAMP: UTC",
            "duration_s": "DOUBLE: up to the last heartbeat while it runs",
            "last_step": "BIGINT: the largest step",
            "host": "VARCHAR",
            "user": "VARCHAR",
            "command": "VARCHAR",
            "git_commit": "VARCHAR",
            "git_describe": "VARCHAR: git describe --tags --always --dirty",
            "git_dirty": "BOOLEAN: uncommitted changes to tracked files",
            "pr": "BIGINT: pull request, if the environment told",
            "parent": "VARCHAR: the run that it was forked or rerun from",
            "notes": "VARCHAR: those of the start and later ones, a line each",
            "tags": "VARCHAR[]",
            "config": "JSON",
            "config_key": "VARCHAR: the same for runs that differ only in the seed",
        },
        """
        select r.run_id, r.name, r.task, r.algo, r.env, r.seed, r.status, r.benchmark, r.started_at, r.finished_at,
            r.duration_s, r.last_step, r.host, r.user, r.command, r.git_commit, r.git_describe, r.git_dirty, r.pr,
            r.parent, concat_ws(chr(10), nullif(r.notes, ''), c.notes) as notes, coalesce(c.tags, r.tags) as tags,
            r.config::json as config, r.config_key
        from cached.runs r left join cached.changes c using (run_id)
        where c.hidden is null
        """,
    ),
    "params": View(
        "The config of each run, a row a parameter; nested ones with dotted keys.",
        {"run_id": "VARCHAR", "key": "VARCHAR", "value": "VARCHAR"},
        "select * from cached.params where run_id not in (select run_id from cached.hidden)",
    ),
    "tags": View(
        "The tags of each run, a row a tag.",
        {"run_id": "VARCHAR", "tag": "VARCHAR"},
        "select run_id, unnest(tags) as tag from runs",
    ),
    "metrics": View(
        "Every point that counts, up to the last flush of runs that are at work.",
        {
            "run_id": "VARCHAR",
            "name": "VARCHAR",
            "step": "BIGINT",
            "time": "TIMESTAMP: UTC",
            "value": "DOUBLE: NaN and infinities as they were logged",
            "level": "VARCHAR: essential, info or debug",
        },
        "select * from cached.metrics where run_id not in (select run_id from cached.hidden)",
    ),
    "summaries": View(
        "Figures of each metric of each run, over finite values.",
        {
            "run_id": "VARCHAR",
            "name": "VARCHAR",
            "count": "BIGINT: points logged",
            "nonfinite": "BIGINT: of these NaN or infinite",
            "first": "DOUBLE",
            "last": "DOUBLE",
            "min": "DOUBLE",
            "max": "DOUBLE",
            "mean": "DOUBLE: over logged points",
            "auc": "DOUBLE: the average over all timesteps: each value holds until the next one",
            "final": "DOUBLE: the mean of the points in the last 10% of the run's steps",
            "diverged": "BOOLEAN: an infinity, or NaN after the first number; such a run never wins `top`",
        },
        "select * from cached.summaries where run_id not in (select run_id from cached.hidden)",
    ),
    "newest": View(
        "The runs of the newest benchmark (or newest group of seeds) of each (task, algo, env).",
        {"*": "the columns of runs"},
        """
        with grouped as (
            -- Outside a benchmark, a group is one configuration at one version of the code.
            select *, coalesce(benchmark, config_key || ' ' || coalesce(git_describe, '')) as seeds_of from runs
        ), newest_group as (
            select task, algo, env, arg_max(seeds_of, started_at) as seeds_of from grouped group by task, algo, env
        )
        select grouped.* exclude (seeds_of)
        from grouped semi join newest_group n
            on grouped.task = n.task and grouped.algo is not distinct from n.algo
            and grouped.env is not distinct from n.env and grouped.seeds_of = n.seeds_of
        -- A seed that was run again counts once.
        qualify row_number() over (
            partition by task, algo, env, config_key, coalesce(seed::varchar, run_id) order by started_at desc, run_id
        ) = 1
        """,
    ),
    "checkpoints": View(
        "The saved states of each run.",
        {"run_id": "VARCHAR", "step": "BIGINT", "time": "TIMESTAMP: UTC", "bytes": "BIGINT", "path": "VARCHAR"},
        "select * from cached.checkpoints where run_id not in (select run_id from cached.hidden)",
    ),
    "media": View(
        "Figures, videos, texts and files of each run.",
        {
            "run_id": "VARCHAR",
            "name": "VARCHAR",
            "step": "BIGINT",
            "kind": "VARCHAR: figure, video, text or file",
            "bytes": "BIGINT",
            "path": "VARCHAR",
        },
        "select * from cached.media where run_id not in (select run_id from cached.hidden)",
    ),
    "verdicts": View(
        "What the gate concluded, newest last.",
        {"number": "BIGINT", "time": "TIMESTAMP: UTC", "user": "VARCHAR", "verdict": "JSON"},
        "select * from cached.verdicts",
    ),
    "problems": View(
        "What could not be read or written, by run: damaged files, lost rows.",
        {"run_id": "VARCHAR", "problem": "VARCHAR"},
        "select * from cached.problems where run_id not in (select run_id from cached.hidden)",
    ),
}
