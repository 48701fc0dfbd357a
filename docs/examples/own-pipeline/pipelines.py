"""Pipeline that prepares the columns of `patients.csv` for a logistic regression."""

from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

columns = ColumnTransformer(
    [
        ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "dose", "admitted"]),
        ("texts", OneHotEncoder(handle_unknown="ignore"), ["ward", "postcode"]),
    ]
)
model = Pipeline([("columns", columns), ("clf", LogisticRegression(class_weight="balanced"))])
