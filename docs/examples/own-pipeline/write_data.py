"""Writes `patients.csv`: 2,000 made-up records, 8% of them positive."""

import numpy as np
import pandas as pd

RECORDS = 2000
random = np.random.default_rng(0)
table = pd.DataFrame(
    {
        "patient": range(RECORDS),
        "age": random.integers(18, 95, RECORDS),
        "dose": random.gamma(4, 10, RECORDS).round(1),
        "ward": random.choice(["surgery", "medicine", "NA"], RECORDS),
        "postcode": [f"{code:05}" for code in random.integers(1, 200, RECORDS) * 100],
        "admitted": pd.Timestamp("2024-01-01")
        + pd.to_timedelta(random.integers(0, 365, RECORDS), "D"),
    }
)
risk = table["age"] / 20 + table["dose"] / 20 + random.normal(0, 1, RECORDS)
table["relapse"] = np.where(risk > risk.quantile(0.92), "yes", "no")
table.loc[random.random(RECORDS) < 0.05, "dose"] = np.nan  # not every dose is known
table.to_csv("patients.csv", index=False)
