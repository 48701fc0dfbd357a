"""Writes `defaults.csv`: 2,500 loans, of which 8% are not paid back, by a synthetic rule."""

import numpy as np
import pandas as pd

random = np.random.default_rng(0)
attributes = random.normal(size=(2500, 6))
risk = attributes[:, 0] + 0.7 * attributes[:, 1] * attributes[:, 2] + random.normal(size=2500)
table = pd.DataFrame(attributes, columns=["debt", "income", "age", "rate", "term", "savings"])
table["branch"] = np.where(random.random(2500) < 0.3, "north", "south")
table["outcome"] = np.where(risk > np.quantile(risk, 0.92), "unpaid", "paid")
table.to_csv("defaults.csv", index=False)
