"""Four hospitals, one message each: FLamby's Fed-Heart-Disease, beside what federated training published.

Run: python benchmarks/accuracy/fed_heart.py --data FOLDER (with fed_heart_cleveland.csv.gz and the three
others, the processed files of UCI's heart disease data).

The protocol is FLamby's: columns 10 to 12 are left out, then rows with gaps; columns 2 and 6 become dummies
without the first; each hospital keeps two thirds for training, by its own seed; accuracy is that on all test
rows together. Published figures are means over the five seeds of FLamby's result files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split

from steelyard.sites import Hub, ReleasePolicy, Site

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
PUBLISHED = {
    "pooled training (FLamby)": (0.795, "all rows"),
    "Cyclic": (0.785, "100 rounds"),
    "best single hospital": (0.784, "none"),
    "FedAdagrad, FedAdam, FedYogi": (0.779, "100 rounds"),
    "FedAvg, FedProx, Scaffold": (0.748, "100 rounds"),
}


def read(folder: Path, hospital: str) -> pd.DataFrame:
    """Rows of a hospital without the columns that are mostly gaps."""
    rows = pd.read_csv(folder / f"fed_heart_{hospital}.csv.gz", header=None, na_values="?")
    rows = rows.drop(columns=[10, 11, 12]).dropna()
    rows["disease"] = (rows.pop(13) > 0).astype(int)
    return rows


def hospitals(folder: Path) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """Training and test rows of each hospital, with the dummies of all four."""
    parts = {name: read(folder, name) for name in HOSPITALS}
    together = pd.concat(parts)
    for column in (2, 6):
        values = sorted(together[column].unique())[1:]
        for part in parts.values():
            for value in values:
                part[f"{column}={value:g}"] = (part[column] == value).astype(float)
            part.drop(columns=column, inplace=True)
    split = {}
    for name, part in parts.items():
        part.columns = [str(column) for column in part.columns]
        labels = part["disease"].to_numpy()
        stratify = labels if np.bincount(labels, minlength=2).min() > 2 else None
        train, test = train_test_split(
            np.arange(len(part)),
            test_size=1 - 0.66,
            train_size=0.66,
            random_state=43,
            shuffle=True,
            stratify=stratify,
        )
        split[name] = part.iloc[train], part.iloc[test]
    return split


def accuracy(hub: Hub, test: pd.DataFrame) -> float:
    """Share of right answers of the pooled model."""
    answers = [a.labels for _, a in hub.model().answers(test.drop(columns="disease"))]
    return float(accuracy_score(test["disease"], np.concatenate(answers)))


def pooled(split: dict[str, tuple[pd.DataFrame, pd.DataFrame]], policy: ReleasePolicy) -> tuple[Hub, int]:
    """A hub with one message of each hospital, and the bytes of the messages."""
    hub, n_bytes = Hub(), 0
    for name, (train, _) in split.items():
        site = Site(name, "disease", policy=policy)
        site.learn(train)
        message = site.publish().to_bytes()
        n_bytes += len(message)
        hub.receive(message)
    return hub, n_bytes


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    split = hospitals(parser.parse_args().data)
    test = pd.concat([part for _, part in split.values()])
    print(f"{sum(len(train) for train, _ in split.values())} training rows, {len(test)} test rows\n")
    print(f"{'method':<42}{'accuracy':>9}  messages")
    for policy, name in (
        (ReleasePolicy.open(), "one message each"),
        (ReleasePolicy(), "with the release policy"),
    ):
        hub, n_bytes = pooled(split, policy)
        print(f"{'ours, ' + name:<42}{accuracy(hub, test):>9.3f}  1 round, {n_bytes:,} bytes in all")
    for name, (value, messages) in PUBLISHED.items():
        print(f"{name:<42}{value:>9.3f}  {messages}")
    print("\nWhat each hospital gains (squared error and AUC on its own training statistics):")
    for standing in hub.compare():
        print(
            f"  {standing.site:<12} {standing.rows:>4.0f} rows  pooled {standing.squared_error:.3f} / "
            f"{standing.auc:.3f}   alone {standing.local_squared_error:.3f} / {standing.local_auc:.3f}"
        )


if __name__ == "__main__":
    main()
