"""Federated learning with four hospitals as processes, one hub and one message each: `make sites`.

Every hospital keeps its rows in a file of its own and publishes statistics: to a hub over HTTP, then as a
secure sum through a folder, where the hub sees the total alone. The pooled model is compared with one that
has all rows in one place; at the end a hospital leaves. The rows are made up; with `make sites DATA=folder`
(of fed_heart_cleveland.csv.gz and the three others) they are those of four real hospitals, split as FLamby
does.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from steelyard import ProximalSVC, load
from steelyard.federated import Folder, Hub, ReleasePolicy, Round
from steelyard.tables import TableModel

TARGET = "disease"
SIZES = {"north": 360, "east": 300, "south": 240, "west": 210}
BLOOD = [f"blood {k}" for k in range(1, 9)]
EVERYTHING = ("--min-rows", "1", "--min-change", "0")


def made_up(n):
    """Return patients of a hospital; age and rate of disease differ between hospitals."""
    rng = np.random.default_rng(n)
    ill = (rng.random(n) < 0.3 + n / 1000).astype(int)
    rows = {
        "age": rng.integers(30, 90, size=n) + n // 60,
        "pressure": rng.normal(120 + 8 * ill, 12).round(),
        "smokes": np.where(rng.random(n) < 0.3 + 0.2 * ill, "yes", "no"),
    }
    rows |= {name: rng.normal(0.3 * ill).round(2) for name in BLOOD}
    return pd.DataFrame({**rows, TARGET: ill})


def hospitals(data):
    """Return training and test rows of four hospitals, and published results."""
    if data is None:
        rows = {name: made_up(n) for name, n in SIZES.items()}
        return {name: (part[::3], part.drop(part.index[::3])) for name, part in rows.items()}, {}
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "accuracy"))
    import fed_heart

    return fed_heart.hospitals(data), fed_heart.PUBLISHED


def steelyard(*arguments, **options):
    """Start the command as a site would run it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "steelyard", *map(str, arguments)], text=True, env=environment, **options
    )


def all_publish(names, *options):
    """Run all hospitals in parallel; return the bytes they sent and their output."""
    arguments = {
        name: ("site", "publish", f"{name}.csv", "--name", name, "--json", *options) for name in names
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [steelyard(*each, **pipes) for each in arguments.values()]
    outputs = [process.communicate() for process in running]
    assert not any(process.returncode for process in running), outputs
    return sum(json.loads(sent)["bytes"] for sent, _ in outputs), [said.strip() for _, said in outputs]


def quietly(*arguments):
    """Run a command and check that it succeeds."""
    process = steelyard(*arguments, stderr=subprocess.PIPE)
    said = process.communicate()[1]
    assert process.returncode == 0, said


@contextlib.contextmanager
def hub_over_http():
    """Run a hub in a separate process; yield the URL of its model."""
    arguments = ("hub", "serve", "--store", "hub.db", "--model", "heart", "--target", TARGET, "--port", 0)
    hub = steelyard(*arguments, stderr=subprocess.PIPE)
    try:
        address = next(re.search(r"http://\S+", line) for line in hub.stderr if "serving at" in line)[0]
        yield f"{address}v1/models/heart"
    finally:
        hub.terminate()
        hub.communicate()


def collected(*arguments):
    """Return the pooled model of an endpoint and the digest of its statistics."""
    hub = steelyard("hub", "collect", *arguments, "-o", "pooled.steelyard", stderr=subprocess.PIPE)
    said = hub.communicate()[1]
    assert hub.returncode == 0, said
    return load("pooled.steelyard"), re.search(r"digest (\w+)", said)[1]


def accuracy(model, test):
    """Return the accuracy."""
    answers = [part.labels for _, part in model.predictions(test.drop(columns=TARGET))]
    return float(np.mean(np.concatenate(answers) == test[TARGET].to_numpy()))


def line(what, model, test, messages):
    """Print one line of the table."""
    figure = model if isinstance(model, float) else accuracy(model, test)
    return f"{what:<39}{figure:>9.3f}  {messages}"


def in_one_place(frames):
    """Return a model fitted on all these rows."""
    return TableModel(ProximalSVC(), target=TARGET).fit(
        (rows := pd.concat(frames, ignore_index=True)).drop(columns=TARGET), rows[TARGET]
    )


def open_sum(this, names):
    """Return the digest of the sum of unmasked updates with the quantizer of a round."""
    hub = Hub()
    for name in names:
        site = this.config.site(name, ReleasePolicy.open())
        site.learn(f"{name}.csv")
        hub.receive(site.publish())
    return hub.digest()


def secure_sum(split, test):
    """Repeat with secure aggregation; then one hospital withdraws."""
    rows = pd.concat([train for train, _ in split.values()])
    kinds = {name: rows[name].dtype.kind for name in rows.columns.drop(TARGET)}
    terms = [part for name, kind in kinds.items() if kind in "if" for part in ("--number", name)]
    for name, kind in kinds.items():
        if kind not in "if":
            terms += ["--category", f"{name}={','.join(sorted(rows[name].unique()))}"]
    terms += [part for name in split for part in ("--site", name)]
    quietly(
        *("hub", "open", "shared", "--round", "first", "--target", TARGET, "--label", 0, "--label", 1, *terms)
    )
    n_bytes, said = all_publish(split, "--to", "shared", "--round", "first", *EVERYTHING)
    assert len(set(said)) == 1, "the hospitals must show the same fingerprint"
    model, digest = collected("shared", "--round", "first")
    this = Round(Folder("shared"), "first")
    bits = "same bits" if digest == open_sum(this, split) else "OTHER BITS"
    lines = [line("the same as a secure sum", model, test, f"1 round, {n_bytes:,} B, {bits}")]
    *stay, leaves = split
    quietly("site", "leave", "--name", leaves, "--to", "shared", "--receipt", f"{leaves}.receipt")
    model, digest = collected("shared", "--round", "first")
    bits = "as if never there" if digest == open_sum(this, stay) else "OTHER BITS"
    return [*lines, line(f"when {leaves} has left that sum", model, test, bits)], said[0]


def main():
    """Publish, merge and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="Folder with the files of the four real hospitals.")
    split, published = hospitals(parser.parse_args().data)
    test = pd.concat([part for _, part in split.values()])
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, (train, _) in split.items():
            train.to_csv(f"{name}.csv", index=False)
        n_rows = sum(len(train) for train, _ in split.values())
        print(f"{len(split)} hospitals, {n_rows} training rows that stay there, {len(test)} test rows\n")
        with hub_over_http() as hub:
            lines = []
            for what, options in (("safe release policy", ()), ("everything may leave", EVERYTHING)):
                n_bytes, _ = all_publish(split, "--to", hub, "--target", TARGET, *options)
                model, _ = collected(hub)
                lines.append(line(f"one message each, {what}", model, test, f"1 round, {n_bytes:,} B"))
            secure, said = secure_sum(split, test)
            lines += secure
            trains = [train for train, _ in split.values()]
            lines.append(line("all rows in one place", in_one_place(trains), test, "all rows"))
            best = max(accuracy(in_one_place([train]), test) for train in trains)
            lines.append(line("the best of the hospitals alone", best, test, "none"))
            lines += [line(f"FLamby: {name}", *figures) for name, figures in told(published, test)]
            print(f"in the secure sum all hospitals show the\n{said}\n")
            print(f"{'method':<39}{'accuracy':>9}  messages", *lines, sep="\n")
            print(
                "\nWhat each hospital brings and gains (on its own rows, from statistics alone):", flush=True
            )
            steelyard("hub", "compare", hub).wait()


def told(published, test):
    """Return published results as lines of the table."""
    return [(name, (figure, test, messages)) for name, (figure, messages) in published.items()]


if __name__ == "__main__":
    main()
