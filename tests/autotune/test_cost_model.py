"""The cost models on made-up loop nests whose speed is known."""

import numpy as np
import pytest

from tilewright.autotune.cost_model import RidgeModel, XGBoostModel, held_out_correlation, relative_speed, spearman
from tilewright.tir import optional


def nests(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features [rows, 20]; speed depends on two of them, not linearly, with a little noise."""
    rng = np.random.default_rng(seed)
    features = 2.0 ** rng.integers(0, 12, (rows, 20))
    log = np.log2(features)
    seconds = 1e-3 * 2 ** (0.4 * np.abs(log[:, 3] - 6) + 0.2 * log[:, 7]) * rng.uniform(0.95, 1.05, rows)
    return features.astype("float32"), relative_speed(list(seconds))


@pytest.mark.parametrize(("model", "least"), [(XGBoostModel(0), 0.75), (RidgeModel(), 0.3)])
def test_models_rank_unseen_nests(model, least: float) -> None:
    features, speed = nests(128, 0)
    unseen, truth = nests(64, 1)
    model.fit(features, speed)
    correlation = spearman(model.predict(unseen), truth)
    assert correlation is not None and correlation >= least, correlation
    first = model.predict(unseen)
    model.fit(features, speed)
    np.testing.assert_array_equal(first, model.predict(unseen))  # the same data give the same model


def test_held_out_correlation_does_not_see_noise_as_knowledge() -> None:
    features, speed = nests(96, 0)
    known = held_out_correlation(features, speed, seed=0)
    noise = held_out_correlation(features, np.random.default_rng(5).permutation(speed), seed=0)
    assert known is not None and noise is not None and known > 0.6 and abs(noise) < 0.4
    assert held_out_correlation(features[:5], speed[:5], seed=0) is None


def test_spearman() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 1000]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 1, 2, 3], [1, 1, 2, 3]) == pytest.approx(1)
    assert spearman([1, 1, 1], [1, 2, 3]) is None and spearman([1, 2], [1, 2]) is None


def test_failures_are_slowest() -> None:
    np.testing.assert_allclose(relative_speed([2.0, None, 1.0, 4.0]), [0.5, 0, 1, 0.25])


def test_a_missing_package_is_named_with_its_extra() -> None:
    with pytest.raises(ImportError, match=r"the cost model needs the package 'no_such_package'.*tilewright\[tune\]"):
        optional.optional_import("no_such_package.part", "the cost model", "tune")
