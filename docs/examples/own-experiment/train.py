"""Nearest neighbours on handwritten digits: what an attack gains, against accuracy."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier


def run(neighbours: int = 1, train_size: int = 300, seed: int = 0) -> dict[str, float]:
    """Trains one model on random records; an attack says "member" where the model is right."""
    x, y = load_digits(return_X_y=True)
    x, others, y, truth = train_test_split(x, y, train_size=train_size, random_state=seed)
    model = KNeighborsClassifier(neighbours).fit(x, y)
    right, test = model.score(x, y), model.score(others, truth)
    return {"privacy/membership_advantage": right - test, "utility/test_accuracy": test}


run.metrics = {"privacy/membership_advantage": "min", "utility/test_accuracy": "max"}
