"""Misfires of a simulated engine, built into gradslide; contiguous blocks of rows differ."""
# ruff: noqa: RUF012 (benchopt reads plain assignments)

from benchopt import BaseDataset

import gradslide as gs


class Dataset(BaseDataset):
    name = "misfire"
    parameters = {"rows": [20_000], "seed": [0]}

    def get_data(self):
        dataset = gs.data.misfire(self.rows, self.seed)
        return {"features": dataset.features, "labels": dataset.labels}
