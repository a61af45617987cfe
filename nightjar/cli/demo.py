"""``nightjar demo``: runs an evaluation from end to end, on a local model that needs no key."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.eval.running import runner, show_outcome, watched
from nightjar.cli.options import option
from nightjar.cli.sql.command import sql
from nightjar.cli.terminal import echo
from nightjar.core.logs import log_to_stderr
from nightjar.evaluation.config import RunConfig
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer

QUESTION = "Which problems does the model get wrong most often?"
QUERY = """\
SELECT prompt->>'$[1].content' AS question, answer, count(*) AS rollouts, avg(reward) AS avg_reward
FROM rollouts WHERE run_id = '{run_id}'
GROUP BY ALL ORDER BY avg_reward, question LIMIT 5"""

NEXT = """\
Next:
{activate}  nightjar view                                         runs, answers, conversations in a browser
  nightjar up --detach                                  Prefect's UI on http://127.0.0.1:4200
  nightjar model-server                                 the demo's model, in a second terminal
  nightjar eval run arithmetic -m demo -b http://127.0.0.1:8000/v1 -n 100
  nightjar leaderboard arithmetic                       its models, with intervals and ties
  nightjar eval run gsm8k -m gpt-4.1-mini -p openai     a real model: export OPENAI_API_KEY first
  nightjar eval run --help"""


def demo(
    direct: Annotated[bool, option("Run without Prefect. The start takes 2 s instead of 15 s.", "--direct")] = False,
) -> None:
    """Evaluate a local model as a Prefect flow, on 100 problems with 4 rollouts each; then query the results in SQL."""
    log_to_stderr()
    model = ArithmeticSolver(error_rate=0.25, seed=7)
    with ModelServer(model, faults=Faults(latency_ms=20, rate_429=0.02, seed=7)) as server:
        echo("A local model solves arithmetic; 1 in 4 answers is wrong, and 1 in 50 requests is refused.", err=True)
        if not direct:
            echo("Evaluating it as a Prefect flow; a temporary server takes some seconds to start.", err=True)
        config = RunConfig(
            env_id="arithmetic",
            model="demo",
            base_url=server.url,
            num_examples=100,
            rollouts_per_example=4,
            max_retries=3,
        )
        run = runner("direct" if direct else "prefect")
        outcome = watched(lambda: run(config))
    show_outcome(outcome)
    query = QUERY.format(run_id=outcome.run_id)
    echo(f"\n{QUESTION}\n\n{query}\n")
    sql(query)
    echo(f"\n{NEXT.format(activate=_activation())}")
    raise typer.Exit(int(outcome.status != "completed"))


def _activation() -> str:
    """Returns the line that makes ``nightjar`` a command of the shell, empty if it is one."""
    script = Path(sys.prefix) / "bin" / "activate"
    if shutil.which("nightjar") or not script.is_file():
        return ""
    shown = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    return f"  . {shlex.quote(str(shown))}\n"
