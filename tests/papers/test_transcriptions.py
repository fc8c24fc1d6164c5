"""Compare ProximalSVC with reference implementations of the update equations of the proximal SVM papers.

Numbers in parentheses are equations of the papers. Rows are E = [x, -1]. M = E'E and v = E'e are stored for
each class, and a plane is computed from them. Weights are those of (17) and (4.7). In (29) the weights of the
two classes are exchanged, see docs/misprints.md.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest

from steelyard import ProximalSVC
from steelyard.distributed import files
from steelyard.exceptions import DataError
from steelyard.proximal import FoldedStatistics


@pytest.fixture(params=range(3))
def rows(request):
    """Return rows of three classes, the last one rare, and the rows that are added and removed."""
    rng = np.random.default_rng(request.param)
    y = rng.choice(3, p=[0.6, 0.3, 0.1], size=400)
    X = rng.normal(size=(400, 4)) + y[:, None] * [1.0, 0.5, 0.0, -0.5]
    order = rng.permutation(400)
    return X, y, {"old": order[:250], "gone": order[50:150], "new": order[250:]}


def expanded(X):
    return np.column_stack([X, -np.ones(len(X))])


def planes(model):
    """Return [w, gamma] of every plane x'w - gamma."""
    return np.column_stack([model.coef_, -model.intercept_])


class Terms:
    """The terms l, M and v of some rows, which equations (33) to (40) add and subtract."""

    def __init__(self, X):
        E = expanded(X)
        self.l, self.M, self.v = len(E), E.T @ E, E.sum(axis=0)

    def plus(self, other, sign=1.0):
        result = Terms(np.empty((0, len(self.v) - 1)))
        result.l = self.l + sign * other.l
        result.M, result.v = self.M + sign * other.M, self.v + sign * other.v
        return result


def solved(positive, negative, C):
    """Return the plane of (21), (26) and (28), with the weights of (17)."""
    total = positive.l + negative.l
    sigma = negative.l / total, positive.l / total
    matrix = np.eye(len(positive.v)) / C + sigma[0] * positive.M + sigma[1] * negative.M
    return np.linalg.solve(matrix, sigma[0] * positive.v - sigma[1] * negative.v)


@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
def test_update_matches_algorithm_3_of_the_paper(rows, C):
    X, y, which = rows
    rare = y == 2
    sides = []
    for side in (rare, ~rare):
        parts = {name: Terms(X[chosen][side[chosen]]) for name, chosen in which.items()}
        sides.append(parts["old"].plus(parts["gone"], -1.0).plus(parts["new"]))  # (30), (33), (34)
    model = ProximalSVC(C, standardize=False).fit(X[which["old"]], rare[which["old"]])
    model.update(add=(X[which["new"]], rare[which["new"]]), forget=(X[which["gone"]], rare[which["gone"]]))
    np.testing.assert_allclose(planes(model)[0], solved(*sides, C), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("n_nodes", [1, 2, 5])
def test_distributed_update_matches_algorithm_4_of_the_paper(rows, n_nodes):
    X, y, which = rows
    rare = y == 2
    sides = [Terms(X[which["old"]][side[which["old"]]]) for side in (rare, ~rare)]
    model = ProximalSVC(standardize=False).fit(X[which["old"]], rare[which["old"]])
    parts = []
    for node in range(n_nodes):
        new, gone = which["new"][node::n_nodes], which["gone"][node::n_nodes]
        for place, side in enumerate((rare, ~rare)):
            change = Terms(X[new][side[new]]).plus(Terms(X[gone][side[gone]]), -1.0)  # (36), (37)
            sides[place] = sides[place].plus(change)  # (38), (39)
        rows_of = [(X[new], rare[new])], [(X[gone], rare[gone])]
        parts.append(
            files.statistics(files.unlearned(model), rows_of[0], forget=rows_of[1], source=str(node))
        )
    files.update(model, parts)
    np.testing.assert_allclose(planes(model)[0], solved(*sides, 1.0), rtol=1e-8, atol=1e-10)


def test_net_difference_messages_match_algorithm_4_and_direct_update(rows):
    X, y, which = rows
    rare = y == 2
    master = ProximalSVC(standardize=False).fit(X[which["old"]], rare[which["old"]])
    both = copy.deepcopy(master)
    for node in range(3):
        new, gone = which["new"][node::3], which["gone"][node::3]
        parts = [ProximalSVC(quantizer=master.quantizer_).fit(X[part], rare[part]) for part in (new, gone)]
        message = parts[0].statistics().difference(parts[1].statistics())  # (36), (37)
        master.merge(FoldedStatistics.from_bytes(message.to_bytes()))  # (38), (39)
        both.update(add=(X[new], rare[new]), forget=(X[gone], rare[gone]))
    assert master.digest() == both.digest()
    np.testing.assert_array_equal(planes(master), planes(both))


@pytest.mark.parametrize("n_new", [5, 200])
def test_merge_of_net_difference_with_unknown_rows_raises_and_keeps_state(rng, n_new):
    X, y = rng.normal(size=(60, 3)), np.repeat([0, 1], 30)
    master = ProximalSVC().fit(X, y)
    new = ProximalSVC(quantizer=master.quantizer_).fit(0.01 * rng.normal(size=(n_new, 3)), np.ones(n_new))
    unknown = ProximalSVC(quantizer=master.quantizer_).fit(9.0 + rng.normal(size=(40, 3)), np.ones(40))
    before = master.digest()
    with pytest.raises(DataError, match="forgotten"):
        master.merge(new.statistics().difference(unknown.statistics()))
    assert master.digest() == before


def test_merge_of_nodes_matches_equation_35(rows):
    X, y, _ = rows
    rare = y == 2
    nodes = [slice(begin, None, 3) for begin in range(3)]
    sides = []
    for side in (rare, ~rare):
        total = Terms(X[:0])
        for node in nodes:
            total = total.plus(Terms(X[node][side[node]]))
        sides.append(total)
    merged = ProximalSVC(standardize=False).fit(X[nodes[0]], rare[nodes[0]])
    for node in nodes[1:]:
        merged.merge(ProximalSVC(standardize=False).fit(X[node], rare[node]))
    np.testing.assert_allclose(planes(merged)[0], solved(*sides, 1.0), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
def test_multiclass_planes_match_equations_4_24_and_4_25(rows, C):
    """Check the one-vs-rest plane of class j from M and v, after adding and removing rows."""
    X, y, which = rows
    model = ProximalSVC(C, standardize=False).fit(X[which["old"]], y[which["old"]])
    model.update(add=(X[which["new"]], y[which["new"]]), forget=(X[which["gone"]], y[which["gone"]]))

    def now(chosen):  # (4.24)
        old, gone, new = (Terms(X[which[name]][chosen[which[name]]]) for name in ("old", "gone", "new"))
        return old.plus(gone, -1.0).plus(new)

    everything = now(np.ones(len(y), bool))
    for label in range(3):
        own = now(y == label)
        share = own.l / everything.l
        matrix = np.eye(5) / C + share * everything.M + (1.0 - 2.0 * share) * own.M
        plane = np.linalg.solve(matrix, own.v - share * everything.v)  # (4.25)
        np.testing.assert_allclose(planes(model)[label], plane, rtol=1e-8, atol=1e-10)
