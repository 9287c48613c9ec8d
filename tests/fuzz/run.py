"""Fuzz statuses and bounds: solve random problems, and compare with an independent solver.

python tests/fuzz/run.py                     5,000 problems
python tests/fuzz/run.py --seed 1234         one problem, in detail
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import fuzz_check  # noqa: E402


def show(outcome):
    """Describe one outcome."""
    print(f"seed {outcome.seed}: {outcome.label}")
    print(f"  {outcome.status}, {outcome.seconds:.2f} s; independent solver {outcome.solver_seconds:.2f} s", end="")
    print("" if outcome.is_decided else ", undecided")
    for kind, what in outcome.findings:
        print(f"  {kind}: {what}")


def table(outcomes):
    """Print how many problems of each kind ended how, and what was found."""
    by_kind = defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.kind].append(outcome)
    for kind, some in sorted(by_kind.items()):
        undecided = sum(not outcome.is_decided for outcome in some)
        wrong = sum(bool(outcome.findings) for outcome in some)
        drifted = sum(outcome.has_drifted for outcome in some)
        print(f"\n{kind}: {len(some)} problems, {undecided} undecided, {wrong} with findings", end="")
        print(f", {drifted} warned of rounding in single precision" if drifted else "")
        for status, count in Counter(outcome.status for outcome in some).most_common():
            print(f"  {status:18} {count:6}")
    kinds = defaultdict(list)
    for outcome in outcomes:
        for kind, _ in outcome.findings:
            kinds[kind].append(outcome.seed)
    for kind, seeds in sorted(kinds.items()):
        print(f"\n{kind}: {len(seeds)}; seeds {' '.join(map(str, sorted(seeds)[:40]))}")
    slowest = max(outcomes, key=lambda outcome: outcome.seconds)
    total = sum(outcome.seconds for outcome in outcomes)
    solver = sum(outcome.solver_seconds for outcome in outcomes)
    print(f"\n{len(outcomes)} problems: {total:.0f} s in gradslide, {solver:.0f} s in the independent solver", end="")
    print(f"; the slowest took {slowest.seconds:.1f} s (seed {slowest.seed})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="one problem only, in detail")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    if given.seed is not None:
        outcome = fuzz_check.run(given.seed)
        show(outcome)
        return int(bool(outcome.findings))
    outcomes, began = [], time.perf_counter()
    seeds = range(given.first, given.first + given.problems)
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for outcome in pool.imap_unordered(fuzz_check.run, seeds, chunksize=4):
            outcomes.append(outcome)
            if outcome.findings:
                show(outcome)
            if len(outcomes) % 250 == 0:
                wrong = sum(bool(each.findings) for each in outcomes)
                passed = time.perf_counter() - began
                print(
                    f"{len(outcomes)} of {given.problems} problems, {wrong} with findings, {passed:.0f} s", flush=True
                )
    table(outcomes)
    return int(any(outcome.findings for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
