"""Models of `patients.csv`, fitted to its members."""

import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression


def _fit(model: ClassifierMixin) -> ClassifierMixin:
    table = pd.read_csv("patients.csv")
    members = table[table["member"] == 1]
    return model.fit(members.drop(columns=["relapse", "member"]), members["relapse"])


def logistic() -> ClassifierMixin:
    """Few parameters: it keeps the limits."""
    return _fit(LogisticRegression())


def forest() -> ClassifierMixin:
    """Deep trees: it does not."""
    return _fit(RandomForestClassifier(50, random_state=0))
