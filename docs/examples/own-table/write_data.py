"""Writes `patients.csv`: 569 records of the breast cancer data of scikit-learn."""

from sklearn.datasets import load_breast_cancer

table = load_breast_cancer(as_frame=True).frame.rename(columns={"target": "benign"})
table.to_csv("patients.csv", index=False)
