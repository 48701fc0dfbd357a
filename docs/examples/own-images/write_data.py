"""Writes images of scikit-learn: the folder `digits` with 1,197, and `new` with 600 to release.

The labels are in `digits.csv` and `new.csv`.
"""

from pathlib import Path

import pandas as pd
from PIL import Image
from sklearn.datasets import load_digits

digits = load_digits()
for folder, part in (("digits", slice(600, None)), ("new", slice(600))):
    images, target = digits.images[part], digits.target[part]
    names = [f"{number:04}.png" for number in range(len(target))]
    Path(folder).mkdir(exist_ok=True)
    for name, pixels in zip(names, images, strict=True):
        Image.fromarray((255 / 16 * pixels).astype("uint8")).save(f"{folder}/{name}")
    labels = {"file": names, "odd": target % 2, "large": target > 4}
    pd.DataFrame(labels).to_csv(f"{folder}.csv", index=False)
