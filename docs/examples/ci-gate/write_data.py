"""Writes `patients.csv`: 3,000 made-up records, half of them in the training set."""

import numpy as np
import pandas as pd

RECORDS = 3000
random = np.random.default_rng(0)
table = pd.DataFrame(random.normal(size=(RECORDS, 6)).round(3), columns=list("abcdef"))
risk = table["a"] + table["b"] / 2 + random.normal(0, 1, RECORDS)
table["relapse"] = np.where(risk > 0, "yes", "no")
table["member"] = random.permutation(RECORDS) % 2  # 1: trains the model, 0: held out
table.to_csv("patients.csv", index=False)
