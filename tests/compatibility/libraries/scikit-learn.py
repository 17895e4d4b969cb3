# /// script
# dependencies = ["scikit-learn==1.9.1"]
# ///
# Fits with OpenMP and with a pool of threads.
import os

import numpy as np
from joblib import cpu_count
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info


def work() -> None:
    assert 1 <= cpu_count() <= os.cpu_count()
    assert {"blas", "openmp"} <= {pool["user_api"] for pool in threadpool_info()}
    line = LinearRegression().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    assert np.allclose([line.coef_[0], line.intercept_], [2.0, 1.0])
    data, labels = load_iris(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    assert cross_val_score(model, data, labels, cv=3).mean() > 0.9
    forest = RandomForestClassifier(20, n_jobs=2, random_state=0).fit(data, labels)
    assert forest.score(data, labels) > 0.95
    wide, kinds = make_classification(2000, 10, random_state=0)
    assert HistGradientBoostingClassifier(max_iter=10).fit(wide, kinds).score(wide, kinds) > 0.85
    groups = KMeans(3, n_init=2, random_state=0).fit(data).labels_
    assert sorted(np.bincount(groups))[0] > 30
