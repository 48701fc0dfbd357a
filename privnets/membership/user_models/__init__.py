"""Target models of users: scikit-learn estimators and torch modules that a study names."""
