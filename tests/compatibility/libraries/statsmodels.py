# /// script
# dependencies = ["statsmodels==0.15.0"]
# ///
# Fits a line and a series, and prints their summary.
import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf
from statsmodels.tsa.arima.model import ARIMA


def work() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": np.arange(200.0)})
    table["y"] = 3 * table.x + 2 + rng.normal(size=200)
    line = smf.ols("y ~ x", table).fit()
    assert abs(line.params["x"] - 3) < 0.01 and line.rsquared > 0.99
    assert "R-squared" in str(line.summary())
    odds = sm.Logit((table.x > 100) ^ (rng.random(200) < 0.2), sm.add_constant(table.x / 100)).fit(
        disp=0
    )
    assert odds.params["x"] > 0
    series = np.cumsum(rng.normal(size=120))
    assert len(ARIMA(series, order=(1, 1, 0)).fit().forecast(5)) == 5
