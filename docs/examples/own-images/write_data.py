"""Writes the folder `digits` with 1,797 images of scikit-learn, and the labels in `digits.csv`."""

from pathlib import Path

import pandas as pd
from PIL import Image
from sklearn.datasets import load_digits

digits = load_digits()
names = [f"{number:04}.png" for number in range(len(digits.target))]
Path("digits").mkdir(exist_ok=True)
for name, pixels in zip(names, digits.images, strict=True):
    Image.fromarray((255 / 16 * pixels).astype("uint8")).save(f"digits/{name}")
labels = {"file": names, "odd": digits.target % 2, "large": digits.target > 4}
pd.DataFrame(labels).to_csv("digits.csv", index=False)
