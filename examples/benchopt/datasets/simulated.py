"""Gaussian rows whose mean drifts, so that contiguous blocks of rows differ."""
# ruff: noqa: RUF012 (benchopt reads plain assignments)

import numpy as np
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "simulated"
    parameters = {"rows": [1_000], "columns": [10], "seed": [0]}

    def get_data(self):
        rng = np.random.default_rng(self.seed)
        features = rng.normal(size=(self.rows, self.columns)) + np.linspace(-1, 1, self.rows)[:, None]
        noise = rng.logistic(size=self.rows)
        return {"features": features, "labels": np.where(features @ rng.normal(size=self.columns) > noise, 1.0, -1.0)}
