# /// script
# dependencies = ["lightgbm==4.7.0"]
# ///
# Boosts trees on OpenMP's threads; its wheel takes libgomp of the system.
import lightgbm as lgb
import numpy as np


def work() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 5))
    y = (x[:, 0] + x[:, 1] > 0).astype(int)
    settings = {"objective": "binary", "verbose": -1, "num_threads": 2, "seed": 0}
    model = lgb.train(settings, lgb.Dataset(x, y), num_boost_round=20)
    assert ((model.predict(x) > 0.5) == y).mean() > 0.95
    again = lgb.Booster(model_str=model.model_to_string())
    assert np.allclose(again.predict(x[:10]), model.predict(x[:10]))
    assert model.feature_importance().argmax() in (0, 1)
