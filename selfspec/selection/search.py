"""Search: random sets first, then sets that a model of the scores proposes.

What SWIFT and Draft & Verify do, with a budget in seconds instead of thousands of
trials: each block is left out or not, the value of a set is the S that its agreement
predicts at its best draft length, and after a share of random sets at budgets of every
size optuna's tree-structured estimator (Bergstra et al. 2011) proposes the rest.
Everything that was scored is a candidate.
"""

import random
import time

from selfspec.costs.draft_length import LIMIT, expected_speedup
from selfspec.selection.frontier import Frontier
from selfspec.selection.items import draft_of
from selfspec.selection.problem import Problem
from selfspec.selection.random_sets import random_items

RANDOM_SHARE = 0.3  # of the seconds
HEAD = "head"


def select(problem: Problem, *, trials: int | None = None) -> Frontier:
    """Search for as long as the problem allows.

    Args:
        trials: stop after that many sets, for a result that does not depend on speed.
    """
    import optuna  # costs a second to import, and nothing else needs it

    began = problem.start()
    started = time.perf_counter()

    def over(share: float, done: int) -> bool:
        if trials is not None:
            return done >= share * trials
        return time.perf_counter() - started >= share * problem.seconds

    if not problem.blocks:
        return problem.frontier("search", [], began)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=problem.seed, n_startup_trials=0),
    )
    space = {
        item.name: optuna.distributions.IntDistribution(0, 1) for item in problem.blocks
    }
    lists = [item.name for item in problem.items if item.tokens]
    if lists:  # 0 is the whole head
        space[HEAD] = optuna.distributions.IntDistribution(0, len(lists))
    rng = random.Random(f"{problem.seed}/search")
    drafts, done = [], 0

    def score(chosen) -> float:
        draft = draft_of(item for item in problem.items if item.name in chosen)
        drafts.append(draft)
        return worth(problem, draft)

    while not over(RANDOM_SHARE, done):
        chosen = {i.name for i in random_items(problem, rng.random(), rng)}
        values = {name: int(name in chosen) for name in space}
        if lists:
            values[HEAD] = next(
                (1 + place for place, name in enumerate(lists) if name in chosen), 0
            )
        study.add_trial(
            optuna.trial.create_trial(
                params=values, distributions=space, value=score(chosen)
            )
        )
        done += 1
    while not over(1.0, done):
        trial = study.ask(space)
        chosen = {name for name, out in trial.params.items() if out and name != HEAD}
        if trial.params.get(HEAD):
            chosen.add(lists[trial.params[HEAD] - 1])
        study.tell(trial, score(chosen))
        done += 1
    return problem.frontier("search", drafts, began)


def worth(problem: Problem, draft) -> float:
    """Predicted S at the best length that drafts at all, one agreement at every place."""
    costs = problem.profile.costs_of(draft, problem.context)
    agreement = problem.agreement(draft)
    return max(expected_speedup(agreement, k, **costs) for k in range(1, LIMIT + 1))
