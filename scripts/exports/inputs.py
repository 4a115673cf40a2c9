"""Inputs of the collection: samples to calibrate with, and others that the import does not see."""

import numpy as np
from collection import Export

# Inputs with fewer numbers than this are small: there are more of them.
LARGE = 30_000


def pictures(shape: tuple[int, ...], count: int, seed: int) -> np.ndarray:
    """Smooth patterns with some noise, `[N, ...shape]`, of mean 0 and variance 1 about, in [-2.5, 2.5]: as normalised photos."""
    rng = np.random.default_rng(seed)
    last = len(shape) == 3 and shape[2] <= 4 < shape[0]
    space = shape[:-1] if last else shape[1:]
    channels = shape[-1] if last else shape[0]
    grid = np.meshgrid(*(np.linspace(0, 1, n, endpoint=False) for n in space), indexing="ij")
    images = np.empty((count, channels, *space), np.float32)
    for image in images:
        waves = rng.normal(size=(channels, 6)) @ np.stack([wave(rng, grid) for _ in range(6)]).reshape(6, -1)
        waves = waves.reshape(channels, *space) + 0.2 * rng.normal(size=(channels, *space))
        image[:] = waves / 1.7 + rng.normal(scale=0.4, size=(channels, *[1] * len(space)))
    images = np.clip(images, -2.5, 2.5)
    return np.ascontiguousarray(np.moveaxis(images, 1, -1) if last else images)


def wave(rng: np.random.Generator, grid: list[np.ndarray]) -> np.ndarray:
    phase = rng.uniform(0, 2 * np.pi) + sum(2 * np.pi * rng.uniform(0, 4) * axis for axis in grid)
    return np.cos(phase)


def tabular(width: int) -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's data set with so many columns, in a fixed order: `[N, width]`, answers `[N]`."""
    from sklearn import datasets

    load = {30: datasets.load_breast_cancer, 13: datasets.load_wine, 10: datasets.load_diabetes, 64: datasets.load_digits, 2: datasets.load_iris}
    x, y = load[width](return_X_y=True)
    # Of irises, onnxruntime's example takes the first two measures.
    x = x[:, :width]
    order = np.random.default_rng(1).permutation(len(x))
    return x[order].astype(np.float32), y[order]


def samples(export: Export, count: int, seed: int) -> np.ndarray:
    """Inputs as the network's application has them, `[N, ...shape]`. Of data sets, seed 1 is the half that is trained with."""
    rng = np.random.default_rng(seed)
    shape = (count, *export.shape)
    if export.source in ("scikit-learn", "boosting") or export.name == "iris_logreg":
        x, _ = tabular(export.shape[0])
        half = len(x) // 2
        return x[:half] if seed == 1 else x[half:][:count]
    if export.name == "text_cnn":
        return rng.integers(0, 1000, shape).astype(np.int64)
    if export.name == "tabular_embeddings":
        return np.concatenate([rng.normal(size=(count, 4)), rng.integers(0, 10, (count, 2))], 1).astype(np.float32)
    if export.name == "dqn_atari":
        return np.clip(pictures(export.shape, count, seed) * 60 + 128, 0, 255).round()
    if export.name == "normalized_dense":
        return (rng.normal(size=shape) * np.sqrt(np.linspace(0.5, 90, 13)) + np.linspace(-2, 30, 13)).astype(np.float32)
    if len(export.shape) == 1 or export.name == "dcgan_generator":
        return np.clip(rng.normal(size=shape), -2.5, 2.5).astype(np.float32)
    return pictures(export.shape, count, seed)


def is_large(export: Export) -> bool:
    return bool(np.prod(export.shape) >= LARGE)


def calibration(export: Export) -> np.ndarray:
    return samples(export, 16 if is_large(export) else 64, 1)


def unseen(export: Export) -> np.ndarray:
    return samples(export, 8 if is_large(export) else 24, 2)
