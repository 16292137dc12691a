"""Cost models: from the features of a lowered loop nest to how fast it will be, relative to the best known.

A model is fitted from scratch each round (a few hundred rows take milliseconds) on throughput divided by the best throughput, failures
being 0, and is judged by Spearman's rank correlation on trials it was not fitted on: what matters is the order, not the time.
Only the train and predict functions of XGBoost that have been stable for years are used; without XGBoost a ridge regression serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..tir.optional import optional_import

Matrix = npt.NDArray[np.float32]
Vector = npt.NDArray[np.float64]

MIN_ROWS = 4  # fewer trials say nothing


class CostModel(Protocol):
    """Predicts speed from features. `name` says which model it is."""

    name: str

    def fit(self, features: Matrix, speed: Vector) -> None:
        """features [n, d]; speed [n] in 0..1, the best is 1."""

    def predict(self, features: Matrix) -> Vector:
        """Speed [n], higher is faster; comparable only among predictions of one fit."""


class XGBoostModel:
    """Boosted trees, squared error on the relative speed.

    Depth and rounds are chosen for 8 to 1,000 rows: with few rows, deep boosting only learns them by heart. One thread: the fit is short,
    and a result that does not depend on the number of cores is the same everywhere.
    """

    name = "xgboost"

    def __init__(self, seed: int = 0, rounds: int = 80):
        self._xgboost = optional_import("xgboost", "the XGBoost cost model", "tune")
        self._parameters = {
            "objective": "reg:squarederror",
            "max_depth": 5,
            "eta": 0.15,
            "min_child_weight": 1,
            "subsample": 0.9,
            "colsample_bytree": 0.7,
            "lambda": 1.0,
            "seed": seed,
            "nthread": 1,
            "verbosity": 0,
        }
        self._rounds = rounds
        self._booster: Any = None

    def fit(self, features: Matrix, speed: Vector) -> None:
        # Faster candidates weigh more: mistakes among the slow ones cost nothing.
        table = self._xgboost.DMatrix(features, label=speed, weight=0.1 + speed)
        self._booster = self._xgboost.train(self._parameters, table, num_boost_round=self._rounds)

    def predict(self, features: Matrix) -> Vector:
        return np.asarray(self._booster.predict(self._xgboost.DMatrix(features)), dtype=np.float64)


class RidgeModel:
    """Linear regression on standardised logarithms of the features with a quadratic penalty: the model that needs NumPy only."""

    name = "ridge"

    def __init__(self, penalty: float = 1.0):
        self._penalty = penalty
        self._mean = self._scale = self._weights = np.zeros(0)
        self._offset = 0.0

    @staticmethod
    def _compress(features: Matrix) -> Vector:
        wide = features.astype(np.float64)
        return np.sign(wide) * np.log1p(np.abs(wide))

    def fit(self, features: Matrix, speed: Vector) -> None:
        x = self._compress(features)
        self._mean, self._scale = x.mean(axis=0), x.std(axis=0) + 1e-9
        x = (x - self._mean) / self._scale
        self._offset = float(speed.mean())
        # The dual form, (X X' + p I)^-1: there are more features than rows.
        dual = np.linalg.solve(x @ x.T + self._penalty * len(x) * np.eye(len(x)), speed - self._offset)
        self._weights = x.T @ dual

    def predict(self, features: Matrix) -> Vector:
        predicted = (self._compress(features) - self._mean) / self._scale @ self._weights + self._offset
        return np.asarray(predicted, dtype=np.float64)


def make_model(seed: int) -> CostModel:
    """XGBoost where it is installed, else the built-in model."""
    try:
        return XGBoostModel(seed)
    except ImportError:
        return RidgeModel()


def relative_speed(seconds: Sequence[float | None]) -> Vector:
    """Best time divided by each time; 0 for a candidate that failed."""
    valid = [value for value in seconds if value is not None]
    best = min(valid, default=1.0)
    return np.array([0.0 if value is None else best / value for value in seconds])


def spearman(predicted: npt.ArrayLike, measured: npt.ArrayLike) -> float | None:
    """Rank correlation in -1..1 (ties share their mean rank); None where it is not defined: fewer than 3 points, or one side constant."""
    first, second = _ranks(np.asarray(predicted, float)), _ranks(np.asarray(measured, float))
    if len(first) < 3 or first.std() == 0 or second.std() == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Vector) -> Vector:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank = last - (counts - 1) / 2
    return np.asarray(mean_rank[inverse], dtype=np.float64)


def held_out_correlation(features: Matrix, speed: Vector, seed: int, folds: int = 4) -> float | None:
    """Spearman's correlation of predictions for trials that the predicting model was not fitted on: cross-validation in `folds` parts."""
    rows = len(speed)
    if rows < 2 * folds:
        return None
    fold_of = np.random.default_rng(seed).permutation(rows) % folds
    predicted = np.zeros(rows)
    for fold in range(folds):
        model = make_model(seed)
        model.fit(features[fold_of != fold], speed[fold_of != fold])
        predicted[fold_of == fold] = model.predict(features[fold_of == fold])
    return spearman(predicted, speed)
