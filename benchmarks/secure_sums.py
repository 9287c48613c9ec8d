"""Time exact sums between four agents in processes of their own, with and without masks.

    python benchmarks/secure_sums.py

Agents form a ring on loopback. For each length of a sum: the smallest time per sum of several batches, the ratio, and
what an agent sends, in bytes, summed over all agents. Both kinds are timed in turn, in the same processes.
"""

import multiprocessing
import os
import time
from queue import Empty

from gradslide.network.peers.keys import KeyPair, key_pair
from gradslide.network.peers.neighbour import Neighbour, free_addresses

AGENTS = 4
# Numbers in a sum, and sums in a batch; 230 are those of a Newton step for 20 coefficients.
SIZES = {21: 100, 230: 100, 5_150: 20, 125_750: 3}
BATCHES = 7


def timed(which: int, keys: list[KeyPair], addresses: list[str], told: "multiprocessing.Queue[tuple]") -> None:
    """Time both networks in turn; the first agent tells."""
    import numpy as np

    from gradslide.network.peers.network import Peers

    os.environ["OMP_NUM_THREADS"] = "1"
    around = [(which - 1) % AGENTS, (which + 1) % AGENTS]
    networks = {}
    for secure in (False, True):
        own = addresses[secure * AGENTS : (secure + 1) * AGENTS]
        neighbours = [Neighbour(f"a{j}", own[j], keys[j].public) for j in around]
        networks[secure] = Peers(
            keys[which], own[which], neighbours, run_id="bench", diameter=2, secure_sums=secure, deadline=120
        )
        networks[secure].session.connect()
    for size, repeats in SIZES.items():
        values = np.random.default_rng(which).normal(size=(1, size))
        best, sent = {False: float("inf"), True: float("inf")}, {}
        for _ in range(BATCHES):
            for secure, network in networks.items():
                before = sum(each.bytes for each in network.traffic.values())
                started = time.perf_counter()
                for _ in range(repeats):
                    network.total(values)
                best[secure] = min(best[secure], (time.perf_counter() - started) / repeats)
                sent[secure] = (sum(each.bytes for each in network.traffic.values()) - before) / repeats
        told.put((which, size, best[False], best[True], sent[False], sent[True]))
    for network in networks.values():
        network.close()


def main() -> None:
    """Start the agents, and print the table."""
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    keys = [key_pair(os.urandom(32)) for _ in range(AGENTS)]
    given = keys, free_addresses(2 * AGENTS), told
    agents = [context.Process(target=timed, args=(which, *given)) for which in range(AGENTS)]
    for agent in agents:
        agent.start()
    heads = ("numbers", "plain ms", "masked ms", "ratio", "plain bytes", "masked bytes", "ratio")
    print("".join(f"{head:>{width}}" for head, width in zip(heads, (9, 11, 11, 8, 14, 14, 8), strict=True)))
    rows: dict[int, list[tuple]] = {}
    while any(len(rows.get(size, ())) < AGENTS for size in SIZES):
        try:
            which, size, *numbers = told.get(timeout=5)
        except Empty:
            if any(agent.exitcode for agent in agents):
                raise SystemExit("an agent failed") from None
            continue
        rows.setdefault(size, []).append((which, *numbers))
        if len(rows[size]) == AGENTS:
            _, plain, masked, *_ = min(rows[size])
            sent, sent_masked = (sum(row[k] for row in rows[size]) for k in (3, 4))
            print(
                f"{size:9,}{1e3 * plain:11.3f}{1e3 * masked:11.3f}{masked / plain:8.2f}"
                f"{sent:14,.0f}{sent_masked:14,.0f}{sent_masked / sent:8.2f}"
            )
    for agent in agents:
        agent.join()


if __name__ == "__main__":
    main()
