"""Fed-Heart-Disease of FLamby with one message per hospital, compared with published federated training.

Run: python benchmarks/accuracy/fed_heart.py --data FOLDER. The folder has fed_heart_cleveland.csv.gz and the
files of the three other hospitals, which are the processed files of the UCI heart disease data.

The protocol is that of FLamby: columns 10 to 12 are dropped, then rows with missing values. Columns 2 and 6
become dummy variables without the first category. Each hospital uses two thirds of its rows for training,
with its own seed. The accuracy is measured on the test rows of all hospitals together. Published results are
means over the five seeds in the result files of FLamby.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split

from steelyard import ProximalSVC
from steelyard.federated import (
    FeatureBounds,
    Hub,
    MaskedSum,
    Masker,
    PrivacyAccountant,
    PrivateSite,
    ReleasePolicy,
    RoundKeys,
    Site,
    SiteUpdate,
    repaired,
)
from steelyard.federated.site_update import Schema
from steelyard.proximal import Quantizer

Split = dict[str, tuple[pd.DataFrame, pd.DataFrame]]

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
PUBLISHED = {
    "pooled training (FLamby)": (0.795, "all rows"),
    "Cyclic": (0.785, "100 rounds"),
    "best single hospital": (0.784, "none"),
    "FedAdagrad, FedAdam, FedYogi": (0.779, "100 rounds"),
    "FedAvg, FedProx, Scaffold": (0.748, "100 rounds"),
}


def read(folder: Path, hospital: str) -> pd.DataFrame:
    """Return the rows of a hospital without the columns that are mostly missing."""
    rows = pd.read_csv(folder / f"fed_heart_{hospital}.csv.gz", header=None, na_values="?")
    rows = rows.drop(columns=[10, 11, 12]).dropna()
    rows["disease"] = (rows.pop(13) > 0).astype(int)
    return rows


def hospitals(folder: Path) -> Split:
    """Return training and test rows of each hospital, with the dummy columns of all four."""
    parts = {name: read(folder, name) for name in HOSPITALS}
    together = pd.concat(parts)
    for column in (2, 6):
        values = sorted(together[column].unique())[1:]
        for part in parts.values():
            for value in values:
                part[f"{column}={value:g}"] = (part[column] == value).astype(float)
        parts = {name: part.drop(columns=column) for name, part in parts.items()}
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


DELTA = 1e-5
DRAWS = 20
MAPS, WIDTH = 5, 300  # number of agreed feature maps, and random features per map
# Centers and scales from public knowledge, not computed from rows. The columns are age, sex, blood pressure,
# cholesterol, fasting sugar over 120, highest pulse, pain at exercise, ST depression. All other columns are
# flags with center and scale 1/2.
CENTERS = {"0": 55.0, "1": 0.5, "3": 130.0, "4": 220.0, "5": 0.5, "7": 140.0, "8": 0.5, "9": 1.0}
SCALES = {"0": 10.0, "1": 0.5, "3": 20.0, "4": 80.0, "5": 0.5, "7": 25.0, "8": 0.5, "9": 1.0}


def accuracy(hub: Hub, test: pd.DataFrame) -> float:
    """Return the accuracy of the pooled model."""
    labels = [found.labels for _, found in hub.model().predictions(test.drop(columns="disease"))]
    return float(accuracy_score(test["disease"], np.concatenate(labels)))


def pooled(split: Split, policy: ReleasePolicy) -> tuple[Hub, int]:
    """Return a hub with one message per hospital, and the size of the messages in bytes."""
    hub, n_bytes = Hub(), 0
    for name, (train, _) in split.items():
        message = site_update(name, train, policy).to_bytes()
        n_bytes += len(message)
        hub.receive(message)
    return hub, n_bytes


def site_update(name: str, train: pd.DataFrame, policy: ReleasePolicy) -> SiteUpdate:
    """Return the update of a hospital with the agreed quantizer."""
    site = Site(name, "disease", policy=policy, estimator=ProximalSVC(quantizer=agreed_quantizer(train)))
    site.learn(train)
    return site.publish()


def agreed_quantizer(train: pd.DataFrame) -> Quantizer:
    return Quantizer.uniform(train.shape[1] - 1, 2.0**-30)


def agreed_schema(train: pd.DataFrame) -> Schema:
    return Schema("disease", tuple(sorted(train.columns.drop("disease"))))


def masked(site_updates: dict[str, SiteUpdate], schema: Schema, quantizer: Quantizer) -> tuple[Hub, int]:
    """Return a hub that received only the sum of masked messages, and the size of the messages in bytes."""
    maskers = {name: Masker(name) for name in site_updates}
    keys = {name: masker.public_key for name, masker in maskers.items()}
    agreement = RoundKeys("heart", keys, schema, quantizer, (0, 1))
    total, n_bytes = MaskedSum(agreement), 0
    for name, masker in maskers.items():
        message = masker.mask(site_updates[name], agreement)
        n_bytes += len(message)
        total.receive(message)
    hub = Hub()
    hub.receive(total.site_update())
    return hub, n_bytes


def same_bits(one: Hub, other: Hub) -> bool:
    """Return whether sums and coefficients of two hubs are bitwise equal."""
    models = one.model().estimator, other.model().estimator
    return one.digest() == other.digest() and all(
        np.array_equal(*(getattr(model, part) for model in models)) for part in ("coef_", "intercept_")
    )


def heart_units(train: pd.DataFrame) -> FeatureBounds:
    columns = train.columns.drop("disease")
    return FeatureBounds(
        {name: CENTERS.get(name, 0.5) for name in columns},
        {name: SCALES.get(name, 0.5) for name in columns},
        norm=math.sqrt(len(columns)),
    )


def noisy(split: Split, epsilon: float, share: float, draw: int) -> tuple[Hub, int]:
    """Return a hub with one noisy message per hospital, and the size of the messages in bytes.

    ``share`` is the share of the noise variance in each message: 1 for messages that are sent openly, 1/4 for
    masked messages of four hospitals. Masks do not change the sum, so this function omits them.
    """
    hub, rng, variance, n_bytes = Hub(), np.random.default_rng(draw), 0.0, 0
    for name, (train, _) in split.items():
        site = PrivateSite(
            name,
            "disease",
            units=heart_units(train),
            labels=[0, 1],
            epsilon=epsilon,
            account=PrivacyAccountant(epsilon, DELTA),
            share=share,
            randomness=rng.bytes,
        )
        site.learn(train)
        message = site.publish().to_bytes()
        hub.receive(message)
        n_bytes += len(message)
        variance += site.sigma**2
    clean = Hub()
    clean.receive(SiteUpdate("sum", 0, 1, hub.schema, repaired(hub.statistics, math.sqrt(variance))))
    return clean, n_bytes


def noisy_rows(split: Split, test: pd.DataFrame, masked_bytes: int) -> None:
    """Print mean accuracies over all draws of the noise. Masked messages have ``masked_bytes`` in total."""
    clipped = heart_units(test).clip(test)
    for share, name in ((1.0, "noise in each message"), (1 / len(split), "noise under secure sums")):
        for epsilon in (1.0, 3.0, 10.0):
            hubs = [noisy(split, epsilon, share, draw) for draw in range(DRAWS)]
            found = [accuracy(hub, clipped) for hub, _ in hubs]
            n_bytes = hubs[0][1] if share == 1.0 else masked_bytes
            what = f"ours, {name}, epsilon {epsilon:g}"
            draws = f"1 round, {n_bytes:,} bytes in all; {np.std(found):.3f} between {DRAWS} draws"
            print(f"{what:<42}{np.mean(found):>9.3f}  {draws}")


def mapped_row(split: Split, test: pd.DataFrame) -> None:
    """Print the accuracy of a linear model on random features of an agreed map.

    The map is drawn from a seed in the agreed units, so no row is needed to fit it.
    """
    found, n_bytes = [], 0
    for seed in range(MAPS):
        hub = Hub()
        for name, (train, _) in split.items():
            site = Site(name, "disease", policy=ReleasePolicy.open())
            site.learn(mapped(train, seed))
            message = site.publish().to_bytes()
            hub.receive(message)
            n_bytes += len(message)
        found.append(accuracy(hub, mapped(test, seed)))
    what = f"1 round, {n_bytes // MAPS:,} bytes in all; {np.std(found):.3f} between {MAPS} maps"
    print(f"{f'ours, {WIDTH} agreed random features':<42}{np.mean(found):>9.3f}  {what}")


def mapped(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return a table of random Fourier features in agreed units, with kernel width 1 / sqrt(columns)."""
    units = heart_units(table)
    names = list(units.centers)
    rows = (table[names] - pd.Series(units.centers)) / pd.Series(units.scales)
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(len(names), WIDTH)) / math.sqrt(len(names))
    waves = np.cos(rows.to_numpy(dtype=float) @ directions + rng.uniform(0, 2 * math.pi, WIDTH))
    columns = [f"w{k:03}" for k in range(WIDTH)]
    return pd.DataFrame(waves, columns=columns).assign(disease=table["disease"].to_numpy())


def main() -> None:
    """Parse the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", "--data-dir", type=Path, required=True)
    print_table(parser.parse_args().data)


def print_table(folder: Path) -> None:
    """Print the accuracy of all methods."""
    split = hospitals(folder)
    test = pd.concat([part for _, part in split.values()])
    print(f"{sum(len(train) for train, _ in split.values())} training rows, {len(test)} test rows\n")
    print(f"{'method':<42}{'accuracy':>9}  messages")
    for policy, name in (
        (ReleasePolicy.open(), "one message each"),
        (ReleasePolicy(), "with the release policy"),
    ):
        hub, n_bytes = pooled(split, policy)
        print(f"{'ours, ' + name:<42}{accuracy(hub, test):>9.3f}  1 round, {n_bytes:,} bytes in all")
    open_hub, _ = pooled(split, ReleasePolicy.open())
    first = next(train for train, _ in split.values())
    secret, n_bytes = masked(
        {name: site_update(name, train, ReleasePolicy.open()) for name, (train, _) in split.items()},
        agreed_schema(first),
        agreed_quantizer(first),
    )
    bits = "same bits" if same_bits(open_hub, secret) else "OTHER BITS"
    print(
        f"{'ours, secure sums':<42}{accuracy(secret, test):>9.3f}  1 round, {n_bytes:,} bytes in all; {bits}"
    )
    mapped_row(split, test)
    noisy_rows(split, test, n_bytes)
    for name, (value, messages) in PUBLISHED.items():
        print(f"{name:<42}{value:>9.3f}  {messages}")
    print("\nWhat each hospital gains (squared error and AUC on its own training statistics):")
    for standing in hub.compare():
        if math.isnan(standing.squared_error):  # the site has rows of one class only
            print(f"  {standing.site:<12} {standing.rows:>4.0f} rows  a small class is held back")
            continue
        print(
            f"  {standing.site:<12} {standing.rows:>4.0f} rows  pooled {standing.squared_error:.3f} / "
            f"{standing.auc:.3f}   alone {standing.local_squared_error:.3f} / {standing.local_auc:.3f}"
        )


if __name__ == "__main__":
    main()
