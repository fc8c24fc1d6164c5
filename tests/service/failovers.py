"""Failovers under load: `python -m tests.service.failovers --failovers 100 --seed 1`.

Several learner processes share the models of one PostgreSQL store. Clients learn, forget, predict and label
through random processes. Each request has its own key and is repeated until it is answered. A random process
is killed with kill -9 and later replaced by a new one. The clients keep a ledger, the record of the rows that
each model must contain. After each kill, every model must be bit-identical to a model that learned exactly
the rows of the ledger: nothing is lost, counted twice or applied partially.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time

import httpx

from tests.postgres import running
from tests.service.torture import SPEC, Client, Forked, expected_digest

N_LEARNERS = 2
N_MODELS = 4
N_CLIENTS_PER_MODEL = 2
MAX_SECONDS = 60.0  # maximum time until another learner process has taken over


class FailoverClient(Client):
    """Client that sends a request to another learner process if it gets no response or status 503."""

    def __init__(self, number: int, seed: int, model: str) -> None:
        super().__init__(number, seed)
        self.model, self.urls, self.failure = model, [""], None

    def send_somewhere(self, *, again: bool) -> bool:
        with httpx.Client(base_url=self.rng.choice(self.urls), timeout=30) as http:
            try:
                return self.send(http, again=again)
            except AssertionError as error:
                if '"status":503' not in str(error):
                    raise
                self.trouble = str(error)
                return False

    def run_until(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                if not self.send_somewhere(again=self.pending is not None):
                    time.sleep(0.05)
        except AssertionError as error:
            self.failure = error

    def finish(self) -> None:
        """Repeat the request without a response until it has one."""
        assert self.failure is None, self.failure
        end = time.monotonic() + MAX_SECONDS
        while self.pending is not None and not self.send_somewhere(again=True):
            assert time.monotonic() < end, f"no answer from {self.model}: {self.trouble}"
            time.sleep(0.1)


def failovers(store: str, n_failovers: int, seed: int) -> dict[str, int]:
    """Kill a learner process ``n_failovers`` times; return counts."""
    rng, models = random.Random(seed), [f"m{k}" for k in range(N_MODELS)]
    opener = Client(99, seed)
    first = [opener._row() for _ in range(50)]
    clients = [
        FailoverClient(100 * k + j, seed, model)
        for k, model in enumerate(models)
        for j in range(N_CLIENTS_PER_MODEL)
    ]
    learners = [Forked(store) for _ in range(N_LEARNERS)]
    try:
        with httpx.Client(base_url=learners[0].url, timeout=30) as http:
            for model in models:
                assert http.put(f"/v1/models/{model}", json=SPEC).status_code == 201
                assert http.post(f"/v1/models/{model}/learn", json={"rows": first}).status_code == 200
        for number in range(n_failovers):
            _load_and_kill(learners, clients, rng)
            for client in clients:
                client.finish()
            _compare(learners[-1].url, models, clients, first, f"failover {number + 1} of seed {seed}")
            learners.append(Forked(store))
    finally:
        for learner in learners:
            learner.kill()
    return {
        "failovers": n_failovers,
        "answers": sum(client.n_answers for client in clients),
        "repeated": sum(client.n_repeated for client in clients),
        "rows": sum(client.n_made for client in clients),
    }


def _load_and_kill(learners: list[Forked], clients: list[FailoverClient], rng: random.Random) -> None:
    """Run all clients, kill a random learner process meanwhile, and let the clients run on for a moment."""
    stop = threading.Event()
    for client in clients:
        client.urls = [learner.url for learner in learners]
    threads = [threading.Thread(target=client.run_until, args=(stop,)) for client in clients]
    answered = sum(client.n_answers for client in clients)
    for thread in threads:
        thread.start()
    while sum(client.n_answers for client in clients) < answered + len(clients) and all(
        thread.is_alive() for thread in threads
    ):
        time.sleep(0.01)
    time.sleep(1.5 * rng.random())  # the new process may be taking over its share of the models
    victim = learners.pop(rng.randrange(len(learners)))
    victim.kill()
    for client in clients:
        client.urls = [learner.url for learner in learners]
    time.sleep(0.5 * rng.random())
    stop.set()
    for thread in threads:
        thread.join()


def _compare(
    url: str, models: list[str], clients: list[FailoverClient], first: list[dict], when: str
) -> None:
    with httpx.Client(base_url=url, timeout=30) as http:
        for model in models:
            found = http.get(f"/v1/models/{model}").json()
            own = [client for client in clients if client.model == model]
            assert (found["digest"], found["rows"]) == expected_digest(first, own), (
                f"after {when} the model {model} differs from a model of the rows in the ledger"
            )
            assert found["waiting_for_labels"] == sum(len(client.waiting) for client in own), when


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failovers", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", help="address of an empty PostgreSQL store; a temporary server by default")
    said = parser.parse_args()
    if said.store:
        counted = failovers(said.store, said.failovers, said.seed)
    else:
        with running(safe=True) as cluster:
            counted = failovers(cluster.url, said.failovers, said.seed)
    summary = ", ".join(f"{n:,} {what}" for what, n in counted.items())
    sys.stdout.write(f"{summary}: no request lost or counted twice\n")


if __name__ == "__main__":
    main()
