"""Generated files with the names and columns that the tutorials read, for tests of their code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["STANDINS"]


def payments(folder: Path) -> None:
    """Write creditcard.csv: two days, one payment in ten is a fraud."""
    rng = np.random.default_rng(0)
    fraud = (rng.random(700) < 0.1).astype(int)
    table = pd.DataFrame(rng.normal(size=(700, 28)) + 0.8 * fraud[:, None])
    table.columns = [f"V{place}" for place in range(1, 29)]
    table.insert(0, "Time", np.sort(rng.integers(0, 172_800, size=700)))
    table["Amount"] = rng.gamma(1.0, 100.0, size=700).round(2)
    table["Class"] = fraud
    table.to_csv(folder / "creditcard.csv", index=False)


def patients(folder: Path) -> None:
    """Write processed.*.data: fourteen columns without names; question marks are missing values."""
    rng = np.random.default_rng(0)
    for name, n in (("cleveland", 120), ("hungarian", 90), ("switzerland", 60), ("va", 80)):
        ill = rng.integers(0, 2, size=n)
        table = pd.DataFrame(
            {
                0: rng.integers(30, 80, size=n),
                1: rng.integers(0, 2, size=n),
                2: rng.integers(1, 5, size=n),
                3: rng.integers(100, 180, size=n) + 10 * ill,
                4: rng.integers(120, 350, size=n),
                5: rng.integers(0, 2, size=n),
                6: rng.integers(0, 3, size=n),
                7: rng.integers(90, 190, size=n) - 20 * ill,
                8: rng.integers(0, 2, size=n),
                9: rng.gamma(1.0, 1.0, size=n).round(1),
                10: "?",
                11: "?",
                12: "?",
                13: ill * rng.integers(1, 5, size=n),
            }
        )
        table.to_csv(folder / f"processed.{name}.data", header=False, index=False)


def pump(folder: Path) -> None:
    """Write SKAB/data/valve1 and valve2: one row per second, with a fault in the second half of each file."""
    rng = np.random.default_rng(0)
    sensors = ("Accelerometer1RMS", "Accelerometer2RMS", "Current", "Pressure", "Temperature", "Thermocouple")
    start = pd.Timestamp("2020-03-09 10:00:00")
    for place in range(8):
        where = folder / "SKAB" / "data" / ("valve1" if place < 4 else "valve2")
        where.mkdir(parents=True, exist_ok=True)
        times = start + pd.Timedelta("20min") * place + pd.to_timedelta(np.arange(220) * 5, unit="s")
        fault = (np.arange(220) >= 140).astype(float)
        shift = np.where(np.arange(8) == place // 4, 2.0, 0.3)
        values = rng.normal(size=(220, 8)) + fault[:, None] * shift
        table = pd.DataFrame(values, columns=[*sensors, "Voltage", "Volume Flow RateRMS"])
        table.insert(0, "datetime", times)
        table.assign(anomaly=fault, changepoint=0.0).to_csv(where / f"{place % 4}.csv", sep=";", index=False)


def nothing(folder: Path) -> None:
    """Do nothing: the page generates its rows or takes them from scikit-learn."""


STANDINS = {
    "fraud": nothing,
    "costs": payments,
    "deletion": patients,
    "hospitals": patients,
    "plant": pump,
    "database": nothing,
    "shops": patients,
}
