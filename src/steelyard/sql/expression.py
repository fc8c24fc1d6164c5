"""Linear models as SQL: scores and labels computed inside the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from steelyard.exceptions import DataError
from steelyard.proximal import ProximalSVC
from steelyard.sql.arithmetic import arithmetic_of
from steelyard.tables import TableModel
from steelyard.tables.databases import sqlglot_table
from steelyard.tables.encoding import PRESENT, VALUE, TableEncoder


def expression(model: TableModel, table: str, dialect: str = "duckdb", *, truths: Sequence[str] = ()) -> str:
    """Return a SELECT that computes the scores and labels of the model for the rows of a table.

    Parameters
    ----------
    model : TableModel
        A model whose estimator is a ProximalSVC without a feature map.
    table : str
        The table to score.
    dialect : str, default="duckdb"
        The database: duckdb, sqlite, postgres, bigquery, snowflake, clickhouse or spark.
    truths : sequence of str
        Boolean columns of the table; true counts as 1 and false as 0.

    Returns
    -------
    str
        A query that returns all columns of the table, ``score`` (two classes) or one ``score_k`` per class,
        and ``label``.
    """
    from sqlglot import ErrorLevel, exp

    arithmetic_of(dialect)  # raises an error for an unknown dialect
    estimator = model.estimator
    if not isinstance(estimator, ProximalSVC) or estimator.feature_map is not None:
        raise DataError(
            f"the model must be a ProximalSVC without a feature map; got {estimator!r}.", source="sql"
        )
    coef, intercept = np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)
    classes = estimator.classes_.tolist()
    names = ["score"] if len(coef) == 1 else [f"score_{k}" for k in range(len(coef))]
    scores = [_plane(exp, model, c, float(b), truths) for c, b in zip(coef, intercept, strict=True)]
    inner = exp.select("*", *(exp.alias_(s, n, quoted=True) for s, n in zip(scores, names, strict=True)))
    inner = inner.from_(sqlglot_table(table))
    label = exp.alias_(_label(exp, names, classes), "label", quoted=True)
    query = exp.select("*", label).from_(inner.subquery("scored"))
    return str(query.sql(dialect=dialect, pretty=True, unsupported_level=ErrorLevel.RAISE))


def _plane(exp: Any, model: TableModel, coef: Any, intercept: float, truths: Sequence[str]) -> Any:
    encoder = model.encoder
    terms = [_number(exp, intercept)]
    for name, weight in zip(encoder.numeric_, coef, strict=False):
        terms.append(exp.Mul(this=_number(exp, weight), expression=_value(exp, encoder, name, truths)))
    numbers = set(encoder.numbers)
    for (name, value), weight in zip(encoder.categories_, coef[len(encoder.numeric_) :], strict=False):
        column = exp.column(name, quoted=True)
        if name not in numbers:
            condition = exp.EQ(this=column, expression=exp.Literal.string(value))
        elif value == VALUE:  # value of a numeric column that the first table did not have
            shift = _number(exp, encoder.shift_of(name))
            shifted = exp.Sub(this=_value(exp, encoder, name, truths), expression=shift)
            terms.append(exp.Mul(this=_number(exp, weight), expression=exp.Paren(this=shifted)))
            continue
        else:
            condition = exp.Is(this=column, expression=exp.Null())
            condition = exp.Not(this=condition) if value == PRESENT else condition
        terms.append(exp.Case().when(condition, _number(exp, weight)).else_(_number(exp, 0.0)))
    total = terms[0]
    for term in terms[1:]:
        total = exp.Add(this=total, expression=term)
    return total


def _value(exp: Any, encoder: TableEncoder, name: str, truths: Sequence[str]) -> Any:
    """Return the SQL value of a numeric column, with missing values replaced."""
    value = exp.column(name, quoted=True)
    if name in truths:  # engines cannot multiply booleans
        one, zero = _number(exp, 1.0), _number(exp, 0.0)
        value = exp.Case().when(value, one).when(exp.Not(this=value.copy()), zero)
    if (fill := encoder.fill_of(name)) is not None:
        value = exp.Coalesce(this=value, expressions=[_number(exp, fill)])
    return value


def _number(exp: Any, value: float) -> Any:
    """Return a double literal with all digits, because engines parse bare decimals as a less precise type."""
    literal = exp.Literal.number(repr(abs(float(value))))
    number = exp.Cast(this=literal, to=exp.DataType.build("double"))
    return exp.Neg(this=number) if value < 0 else number


def _label(exp: Any, names: list[str], classes: list[Any]) -> Any:
    def literal(label: Any) -> Any:
        return exp.Literal.string(label) if isinstance(label, str) else exp.Literal.number(repr(label))

    if len(names) == 1:
        is_positive = exp.GT(this=exp.column("score", quoted=True), expression=exp.Literal.number("0"))
        return exp.Case().when(is_positive, literal(classes[-1])).else_(literal(classes[0]))
    case = exp.Case()
    for index, label in enumerate(classes[:-1]):
        beats = [
            exp.GTE(this=exp.column(names[index], quoted=True), expression=exp.column(other, quoted=True))
            for other in names[index + 1 :]
        ]
        case = case.when(exp.and_(*beats), literal(label))
    return case.else_(literal(classes[-1]))
