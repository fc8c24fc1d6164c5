"""Generated card payments with late labels and about 1 % fraud in five patterns that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from steelyard._types import FloatArray, IntArray
from steelyard.params import Integer, check_value
from steelyard.streams.chunks import Chunk, RowStream, check_chunk

if TYPE_CHECKING:
    import pandas as pd

Random = np.random.Generator
Columns = dict[str, NDArray[Any]]

SECONDS_PER_DAY = 86_400.0
_FIRST_MOMENT = 1_777_852_800.0  # Monday 2026-05-04 00:00 UTC, in seconds since 1970
_FRAUD_SHARE = 0.01
_KM = 200.0  # side length, in kilometres, of the square in which customers live
_NEW_DEVICE_SHARE = 0.06
_N_FAVOURITES = 8  # number of terminals at which a customer usually pays

_CATEGORIES = np.array(
    ["grocery", "fuel", "restaurant", "clothing", "transport", "electronics", "gift cards", "travel"],
    dtype=object,
)
_CATEGORY_SHARE = np.array([0.3, 0.1, 0.2, 0.12, 0.12, 0.07, 0.04, 0.05])
# Price of each category as a multiple of the customer's usual amount.
_CATEGORY_PRICE = np.array([1.0, 1.4, 0.8, 1.6, 0.15, 4.0, 1.5, 6.0])
_COUNTRIES = np.array(["NZ", "AU", "US", "GB", "SG", "TH", "BR"], dtype=object)
_HOME_SHARE = 0.8  # share of terminals that are in the country of the customers
_DEVICES = np.array(["android", "iphone", "card", "watch"], dtype=object)
_GROCERY, _TRANSPORT, _ELECTRONICS, _GIFT_CARDS = 0, 4, 5, 6

# Waves of each fraud pattern as (first day, length in days); they repeat every _WAVE_PERIOD_DAYS.
_WAVE_PERIOD_DAYS = 20
_WAVES: dict[str, tuple[tuple[int, int], ...]] = {
    "card testing": ((0, 20),),
    "skimmed terminal": ((0, 20),),
    "takeover": ((0, 7), (13, 7)),
    "gift cards": ((6, 7),),
    "contactless": ((10, 8),),
}
_FRAUDS_PER_CARD = {"card testing": 6, "takeover": 4, "gift cards": 2, "contactless": 4}
_N_SKIMMED = 4  # number of terminals that are skimmed at the same time
_SKIMMED_DAYS = 10
_HISTORY_DAYS = 14  # number of simulated days before the first row, for its history features

# Pseudo-counts: number of payments with the usual fraud share that are added to each terminal.
_COUNT_PRIOR = 20.0
_RATE_DECAY = 0.8  # daily decay factor of the counts of known frauds
_KEY_STEP = 1e10  # customer * _KEY_STEP + time is a key that sorts by customer, then by time

FEATURES = (
    "amount", "amount_ratio", "hour", "online", "abroad", "abroad_before", "new_device", "new_terminal",
    "distance_km", "hours_since_last", "payments_1h", "payments_24h", "round_amount",
    "terminal_fraud_rate", "category_fraud_rate",
)  # fmt: skip
RAW_COLUMNS = ("customer", "terminal", "category", "channel", "country", "device")


class Payments(RowStream):
    """Generated stream of card payments with about 1 % fraud.

    Customers pay at their usual terminals; some travel, and some shop at night. There are five patterns of
    fraud: card testing (many tiny payments online, then a large one), skimmed terminals, account takeover
    (large payments abroad at night from a new device), gift cards for round amounts, and stolen cards used
    for contactless payments just below the limit. Card testing and skimming are always present; the other
    patterns come and go. The share of fraud stays near 1 %.

    Parameters
    ----------
    n_rows : int, default=60000
        Number of payments.
    payments_per_day : int, default=4000
        Average number of payments per day; weekends have fewer.
    label_days : int, default=2
        Number of days after which it is known whether a payment was fraud. Features use only known labels.
    chunk : int, default=500
        Rows per chunk; the generated rows do not depend on it.
    seed : int, default=7
        Random seed.

    Attributes
    ----------
    feature_names : list of str
        Names of the features, which are computed from earlier payments of the customer and the terminal.
    drifts : tuple of (int, int)
        Rows at which a wave of a pattern begins or ends, each given twice, as start and end of the drift.

    Notes
    -----
    Chunks have numeric features without missing values, the labels "clean" and "fraud", times (seconds since
    1970) and, in ``kept``, the text columns customer, terminal, category, channel, country and device.
    :meth:`to_frame` returns features and text columns, with missing values, as one data frame.

    Examples
    --------
    >>> from steelyard.streams import Payments
    >>> stream = Payments(20_000, chunk=5000)
    >>> [int((chunk.y == "fraud").sum()) for chunk in stream]
    [55, 62, 43, 53]
    """

    def __init__(
        self,
        n_rows: int = 60_000,
        *,
        payments_per_day: int = 4000,
        label_days: int = 2,
        chunk: int = 500,
        seed: int = 7,
    ) -> None:
        check_value("n_rows", n_rows, Integer(1), "Payments")
        check_value("payments_per_day", payments_per_day, Integer(100), "Payments")
        check_value("label_days", label_days, Integer(0), "Payments")
        check_value("seed", seed, Integer(0), "Payments")
        self.n_rows: int = n_rows
        self.payments_per_day, self.label_days, self.seed = payments_per_day, label_days, seed
        self.chunk = check_chunk(chunk, "Payments")
        self.name = "built-in card payments, 1 % fraud, patterns that come and go"
        self.drifts = tuple((row, row) for row in self._change_rows())

    @property
    def feature_names(self) -> list[str]:
        return list(FEATURES)

    @property
    def label_delay_seconds(self) -> float:
        """Number of seconds after which the label of a payment is known."""
        return self.label_days * SECONDS_PER_DAY

    def __iter__(self) -> Iterator[Chunk]:
        n_given = 0
        for columns in self.tables():
            X = np.column_stack([columns[name] for name in FEATURES])
            kept = {name: columns[name] for name in RAW_COLUMNS}
            chunk = Chunk(X, columns["label"], n_given, columns["time"], kept=kept)
            n_given += len(chunk)
            self._n_read = n_given
            yield chunk

    def tables(self) -> Iterator[Columns]:
        """Yield the columns of every chunk as arrays by name: features, text columns, time and label.

        Missing text is None. The column ``pattern`` names the pattern of a fraud; it is "" for other rows.
        """
        waiting: list[Columns] = []
        n_left = self.n_rows
        for day in self._days():
            waiting.append(day)
            n_waiting = min(sum(len(part["time"]) for part in waiting), n_left)
            if n_waiting < min(self.chunk, n_left):
                continue
            joined = {name: np.concatenate([part[name] for part in waiting]) for name in day}
            end = n_waiting if n_waiting == n_left else n_waiting // self.chunk * self.chunk
            for begin in range(0, end, self.chunk):
                yield {name: values[begin : min(begin + self.chunk, end)] for name, values in joined.items()}
            waiting = [{name: values[end:] for name, values in joined.items()}]
            n_left -= end
            if not n_left:
                return

    def to_frame(self) -> pd.DataFrame:
        """Return all payments as a data frame, with text columns and missing values.

        Returns
        -------
        pandas.DataFrame
            Columns ``time``, customer, terminal, category, channel, country, device, all features,
            ``label_time`` (when the label becomes known) and ``fraud`` ("clean" or "fraud").
        """
        import pandas as pd

        parts = list(self.tables())
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        times = columns.pop("time")
        frame = pd.DataFrame(
            {"time": _datetimes(times), **{name: columns[name] for name in (*RAW_COLUMNS, *FEATURES)}}
        )
        frame["label_time"] = _datetimes(times + self.label_delay_seconds)
        frame["fraud"] = columns["label"]
        return frame

    # -- simulated days ----------------------------------------------------------------------------------

    def _day_rows(self, day: int) -> int:
        rng = np.random.default_rng([self.seed, day + _HISTORY_DAYS, 1])
        factor = 0.75 if day % 7 >= 5 else 1.1
        return int(rng.poisson(self.payments_per_day * factor))

    def _change_rows(self) -> list[int]:
        rows, begin, day = [], 0, 0
        before = _active(0)
        while begin < self.n_rows:
            now = _active(day)
            if now != before:
                rows.append(begin)
            before = now
            begin += self._day_rows(day)
            day += 1
        return rows

    def _days(self) -> Iterator[Columns]:
        population = _Population(self.seed, self.payments_per_day)
        history = _History(population, self.label_days)
        for day in count(-_HISTORY_DAYS):
            rng = np.random.default_rng([self.seed, day + _HISTORY_DAYS, 2])
            payments = _simulate_day(rng, population, day, self._day_rows(day))
            columns = history.describe(payments, day)
            if day >= 0:
                yield columns


def _datetimes(seconds: FloatArray) -> NDArray[np.datetime64]:
    return (seconds * 1000.0).astype(np.int64).astype("datetime64[ms]")


def _active(day: int) -> tuple[str, ...]:
    """Return the patterns of fraud that occur on a day."""
    place = day % _WAVE_PERIOD_DAYS
    return tuple(
        name for name, waves in _WAVES.items() if any(begin <= place < begin + n for begin, n in waves)
    )


class _Population:
    """Customers and terminals, with the usual behaviour of each customer."""

    def __init__(self, seed: int, payments_per_day: int) -> None:
        rng = np.random.default_rng([seed, 2**31])
        n, m = max(200, payments_per_day), max(100, payments_per_day // 3)
        self.n_customers, self.n_terminals = n, m
        self.usual_amount = np.exp(rng.normal(3.3, 0.6, n))
        self.activity = np.cumsum(rng.gamma(1.2, size=n))
        self.is_night_owl = rng.random(n) < 0.12
        self.is_traveller = rng.random(n) < 0.12
        self.is_commuter = rng.random(n) < 0.15
        self.online_share = rng.beta(1.5, 4.0, n)
        self.device = rng.integers(0, len(_DEVICES), n)
        self.home = rng.random((n, 2))
        self.category = rng.choice(len(_CATEGORIES), size=m, p=_CATEGORY_SHARE)
        self.is_online = rng.random(m) < 0.25
        foreign = rng.random(m) >= _HOME_SHARE
        self.country = np.where(foreign, rng.integers(1, len(_COUNTRIES), m), 0)
        self.place = rng.random((m, 2)) + 10.0 * foreign[:, None]  # foreign terminals are far away
        self.stores = np.flatnonzero(~self.is_online & ~foreign)
        self.shops = np.flatnonzero(self.is_online)  # indices of the online terminals
        self.abroad = np.flatnonzero(foreign & ~self.is_online)
        self.shuffled_stores = rng.permutation(self.stores)
        near = rng.choice(self.stores, size=(n, 4 * _N_FAVOURITES))
        distances = np.square(self.place[near] - self.home[:, None]).sum(axis=2)
        self.favourites = np.take_along_axis(
            near, np.argsort(distances, axis=1, kind="stable")[:, :_N_FAVOURITES], 1
        )
        self.customer_names = _names("c", n)
        self.terminal_names = _names("t", m)

    def customers(self, rng: Random, n: int) -> IntArray:
        """Draw n customers at random, with probabilities proportional to their activity."""
        found: IntArray = np.searchsorted(self.activity, rng.random(n) * self.activity[-1])
        return found

    def of_category(self, category: int, *, online: bool) -> IntArray:
        """Return the online or domestic terminals of a category, or of all categories if there are none."""
        places = self.shops if online else self.stores
        found = places[self.category[places] == category]
        return found if len(found) else places


def _names(letter: str, n: int) -> NDArray[Any]:
    names = np.empty(n, dtype=object)
    names[:] = [f"{letter}{number:05d}" for number in range(n)]
    return names


# -- payments of one day ------------------------------------------------------------------------------


def _simulate_day(rng: Random, people: _Population, day: int, n_rows: int) -> Columns:
    """Return customer, terminal, amount, time and pattern of a day's payments, ordered by time."""
    patterns = _active(day)
    n_fraud = round(_FRAUD_SHARE * n_rows * float(np.exp(rng.normal(0.0, 0.1))))
    n_each = rng.multinomial(n_fraud, np.full(len(patterns), 1.0 / len(patterns)))
    parts = []
    for name, n in zip(patterns, n_each.tolist(), strict=True):
        if name != "skimmed terminal":
            parts.append(_fraud_of(rng, people, name, n))
    n_usual = n_rows - sum(len(part["amount"]) for part in parts)
    usual = _usual_payments(rng, people, n_usual)
    _skim(rng, people, usual, day, int(n_each[patterns.index("skimmed terminal")]))
    columns = {name: np.concatenate([usual[name], *(part[name] for part in parts)]) for name in usual}
    columns["seconds"] = np.clip(columns["seconds"], 0.0, SECONDS_PER_DAY - 1.0).round(1)
    order = np.argsort(columns["seconds"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    columns["amount"] = np.maximum(columns["amount"], 0.2).round(2)
    return columns


def _usual_payments(rng: Random, people: _Population, n: int) -> Columns:
    customer = people.customers(rng, n)
    draw = rng.random(n)
    terminal = people.favourites[customer, rng.integers(0, _N_FAVOURITES, n)]
    elsewhere = rng.random(n) < 0.15
    terminal = np.where(elsewhere, rng.choice(people.stores, n), terminal)
    terminal = np.where(draw < people.online_share[customer], rng.choice(people.shops, n), terminal)
    travels = rng.random(n) < np.where(people.is_traveller[customer], 0.6, 0.004)
    terminal = np.where(travels, rng.choice(people.abroad, n), terminal)
    hour = np.where(rng.random(n) < 0.5, rng.normal(12.0, 2.5, n), rng.normal(17.5, 2.5, n)) % 24.0
    at_night = rng.random(n) < np.where(people.is_night_owl[customer], 0.5, 0.01)
    hour = np.where(at_night, rng.uniform(0.0, 6.0, n), hour)
    factor = _CATEGORY_PRICE[people.category[terminal]] * np.exp(rng.normal(0.0, 0.55, n))
    amount = people.usual_amount[customer] * factor
    is_gift = people.category[terminal] == _GIFT_CARDS
    amount = np.where(is_gift, 10.0 * np.ceil(amount / 10.0), amount)
    # Commuters buy single tickets, several of them within an hour.
    rides = people.is_commuter[customer] & (rng.random(n) < 0.6)
    terminal = np.where(rides, rng.choice(people.of_category(_TRANSPORT, online=False), n), terminal)
    amount = np.where(rides, rng.uniform(0.5, 6.0, n), amount)
    hour = np.where(rides, np.where(customer % 2 == 0, 7.6, 16.8) + rng.normal(0.0, 0.3, n), hour)
    return {
        "customer": customer,
        "terminal": terminal,
        "amount": amount,
        "seconds": hour * 3600.0,
        "new_device": rng.random(n) < _NEW_DEVICE_SHARE,
        "pattern": np.zeros(n, dtype=np.int64),
    }


_PATTERNS = ("", *_WAVES)


def _fraud_of(rng: Random, people: _Population, name: str, n: int) -> Columns:
    """Return n fraudulent payments of a pattern; each stolen card is used for a group of payments."""
    size = _FRAUDS_PER_CARD[name]
    group = np.arange(n) // size  # index of the stolen card
    place = np.arange(n) % size  # index of the payment in its group
    n_cards = int(group[-1]) + 1 if n else 0
    customer = people.customers(rng, n_cards)[group]
    usual_amount = people.usual_amount[customer]
    # The order of the random draws defines the stream.
    if name == "card testing":
        terminal = rng.choice(people.shops, n_cards)[group]
        is_large = place == size - 1
        electronics = rng.choice(people.of_category(_ELECTRONICS, online=True), n)
        terminal = np.where(is_large, electronics, terminal)
        amount = np.where(is_large, usual_amount * rng.uniform(3.0, 8.0, n), rng.uniform(0.5, 4.0, n))
        gap = rng.uniform(60.0, 240.0, n)
        start = rng.uniform(0.0, 23.0, n_cards)
    elif name == "takeover":
        amount = usual_amount * rng.uniform(2.0, 7.0, n)
        gap = rng.uniform(600.0, 3000.0, n)
        start = rng.uniform(0.0, 5.0, n_cards)
        terminal = rng.choice(people.abroad, n)
    elif name == "gift cards":
        amount = 50.0 * rng.integers(2, 6, n).astype(np.float64)
        terminal = rng.choice(people.of_category(_GIFT_CARDS, online=False), n)
        start = rng.uniform(9.0, 20.0, n_cards)
        gap = rng.uniform(600.0, 5400.0, n)
    else:
        amount = rng.uniform(42.0, 50.0, n)
        terminal = rng.choice(people.of_category(_GROCERY, online=False), n)
        start = rng.uniform(8.0, 20.0, n_cards)
        gap = rng.uniform(300.0, 1500.0, n)
    return {
        "customer": customer,
        "terminal": terminal,
        "amount": amount,
        "seconds": start[group] * 3600.0 + gap * place,
        "new_device": rng.random(n) < (0.75 if name in {"card testing", "takeover"} else _NEW_DEVICE_SHARE),
        "pattern": np.full(n, _PATTERNS.index(name)),
    }


def _skim(rng: Random, people: _Population, usual: Columns, day: int, n: int) -> None:
    """Turn n usual payments into fraud at skimmed terminals, with cards of random customers."""
    # Each terminal is skimmed for _SKIMMED_DAYS days. The days of replacement are staggered.
    turns = (day + _HISTORY_DAYS + np.arange(_N_SKIMMED) * _SKIMMED_DAYS // _N_SKIMMED) // _SKIMMED_DAYS
    skimmed = people.shuffled_stores[(turns * _N_SKIMMED + np.arange(_N_SKIMMED)) % len(people.stores)]
    rows = rng.choice(len(usual["amount"]), size=n, replace=False)
    usual["terminal"][rows] = rng.choice(skimmed, n)
    usual["customer"][rows] = people.customers(rng, n)
    usual["amount"][rows] *= rng.uniform(1.0, 2.0, n)
    usual["pattern"][rows] = _PATTERNS.index("skimmed terminal")


# -- history features -----------------------------------------------------------------------------------


class _History:
    """Past payments of customers and terminals, from which the features of later payments are computed."""

    def __init__(self, people: _Population, label_days: int) -> None:
        n, m = people.n_customers, people.n_terminals
        self._people, self._label_days = people, label_days
        self._sums, self._counts, self._abroad = np.zeros(n), np.zeros(n), np.zeros(n)
        self._last = np.full(n, -np.inf)
        self._visited = np.zeros((n, m), dtype=bool)
        self._keys: FloatArray = np.zeros(0)  # keys (see _KEY_STEP) of the payments of the day before
        self._unlabelled: list[tuple[IntArray, NDArray[np.bool_]]] = []
        self._terminal, self._category = np.zeros((2, m)), np.zeros((2, len(_CATEGORIES)))

    def describe(self, payments: Columns, day: int) -> Columns:
        """Return the columns and features of the payments of a day, and add the payments to the history."""
        people = self._people
        customer, terminal, amount = payments["customer"], payments["terminal"], payments["amount"]
        time = _FIRST_MOMENT + day * SECONDS_PER_DAY + payments["seconds"]
        category, country = people.category[terminal], people.country[terminal]
        online, abroad = people.is_online[terminal], country > 0
        self._learn_labels()
        order = np.lexsort((time, customer))
        whose = customer[order]
        is_first = np.concatenate([[True], whose[1:] != whose[:-1]])
        begin = np.maximum.accumulate(np.where(is_first, np.arange(len(whose)), 0))

        def sums_before(values: FloatArray) -> FloatArray:
            """Return for each row the sum over the earlier rows of its customer on this day."""
            before = np.concatenate([[0.0], np.cumsum(values)[:-1]])
            return np.asarray(before - before[begin])

        sums = sums_before(amount[order]) + self._sums[whose]
        counts = np.arange(len(whose)) - begin + self._counts[whose]
        n_abroad = sums_before(abroad[order].astype(float)) + self._abroad[whose]
        since = time[order] - np.where(is_first, self._last[whose], np.roll(time[order], 1))
        usual = np.where(counts > 0, sums / np.maximum(counts, 1.0), amount[order])
        per_customer = {
            "amount_ratio": amount[order] / usual,
            "abroad_before": n_abroad / np.maximum(counts, 1.0),
            "hours_since_last": np.minimum(since / 3600.0, 168.0),
            **self._recent_counts(whose, time[order]),
        }
        day_order = np.argsort(order)
        is_fraud = payments["pattern"] > 0
        distance = np.linalg.norm(people.place[terminal] - people.home[customer], axis=1) * _KM
        columns: Columns = {
            "amount": amount,
            "hour": payments["seconds"] / 3600.0,
            "online": online.astype(float),
            "abroad": abroad.astype(float),
            "new_device": payments["new_device"].astype(float),
            "new_terminal": (~self._visited[customer, terminal]).astype(float),
            "distance_km": np.where(online, 0.0, distance),
            "round_amount": (amount % 10.0 == 0.0).astype(float),
            "terminal_fraud_rate": _rate(self._terminal)[terminal],
            "category_fraud_rate": _rate(self._category)[category],
            **{name: values[day_order] for name, values in per_customer.items()},
            "time": time,
            "label": np.where(is_fraud, "fraud", "clean"),
            "pattern": np.array(_PATTERNS, dtype=object)[payments["pattern"]],
            **self._text(payments, category, country, online),
        }
        self._remember(payments, time, abroad)
        return columns

    def _recent_counts(self, customer: IntArray, time: FloatArray) -> Columns:
        """Return the number of payments of the customer in the last hour and the last 24 hours."""
        keys = customer * _KEY_STEP + time
        both = np.sort(np.concatenate([self._keys, keys]))
        place = np.searchsorted(both, keys)
        self._keys = keys
        spans = {"payments_1h": 3600.0, "payments_24h": SECONDS_PER_DAY}
        return {
            name: (place - np.searchsorted(both, keys - span)).astype(float) for name, span in spans.items()
        }

    def _text(self, payments: Columns, category: IntArray, country: IntArray, online: Any) -> Columns:
        people, customer, terminal = self._people, payments["customer"], payments["terminal"]
        usual = people.device[customer]
        device = _DEVICES[np.where(payments["new_device"], (usual + 1) % len(_DEVICES), usual)]
        cents = (payments["amount"] * 100.0).round().astype(np.int64)
        device[(cents * 7 + customer) % 11 == 0] = None  # some values are missing
        country_name = _COUNTRIES[country]
        country_name[(cents * 3 + terminal) % 50 == 0] = None
        return {
            "customer": people.customer_names[customer],
            "terminal": people.terminal_names[terminal],
            "category": _CATEGORIES[category],
            "channel": np.where(online, "online", "store").astype(object),
            "country": country_name,
            "device": device,
        }

    def _remember(self, payments: Columns, time: FloatArray, abroad: NDArray[np.bool_]) -> None:
        customer, terminal, amount = payments["customer"], payments["terminal"], payments["amount"]
        n = self._people.n_customers
        self._sums += np.bincount(customer, amount, minlength=n)
        self._counts += np.bincount(customer, minlength=n)
        self._abroad += np.bincount(customer, abroad, minlength=n)
        np.maximum.at(self._last, customer, time)
        self._visited[customer, terminal] = True
        self._unlabelled.append((terminal, payments["pattern"] > 0))

    def _learn_labels(self) -> None:
        """Count frauds and payments of the oldest unlabelled day if its labels are known by now."""
        if len(self._unlabelled) <= self._label_days:
            return
        terminal, is_fraud = self._unlabelled.pop(0)
        for counts, group in ((self._terminal, terminal), (self._category, self._people.category[terminal])):
            counts *= _RATE_DECAY
            counts[0] += np.bincount(group, is_fraud, minlength=counts.shape[1])
            counts[1] += np.bincount(group, minlength=counts.shape[1])


def _rate(counts: FloatArray) -> FloatArray:
    """Return the share of known frauds, shrunk towards the usual share of frauds."""
    rate: FloatArray = (counts[0] + _COUNT_PRIOR * _FRAUD_SHARE) / (counts[1] + _COUNT_PRIOR)
    return rate
