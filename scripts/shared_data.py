"""Readers for the real models and data sets that may lie beside the clone (`../shared/data`, or TACIT_DATA).

Nothing of it belongs to this repository; tests skip and `make accuracy` says so where it is missing.
"""

import gzip
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
CIFAR_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
CIFAR_STD = np.array([0.229, 0.224, 0.225], np.float32)
IMAGENET_MEAN, IMAGENET_STD = CIFAR_MEAN, CIFAR_STD
PHOTOS = ("sqnet_input_image_n02109961_36.jpeg", "winml_cat.jpg", "winml_dog.jpg")


def folder() -> Path | None:
    """The data folder, if there is one."""
    places = [Path(os.environ["TACIT_DATA"])] if "TACIT_DATA" in os.environ else [ROOT.parent / "shared" / "data"]
    return next((p for p in places if (p / "models").is_dir()), None)


def _read_idx(path: Path) -> NDArray[np.uint8]:
    data = gzip.decompress(path.read_bytes())
    dims = np.frombuffer(data, ">u4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * len(dims)).reshape(dims)


def mnist(data: Path, part: str, count: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """The first images `[count, 1, 28, 28]` in 0..255 and labels of `part`: "t10k" or "train"."""
    images = _read_idx(data / "mnist" / f"{part}-images-idx3-ubyte.gz")[:count]
    labels = _read_idx(data / "mnist" / f"{part}-labels-idx1-ubyte.gz")[:count]
    return images[:, None].astype(np.float32), labels


def cifar10(data: Path, part: str, count: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """The first images `[count, 3, 32, 32]` in 0..255 and labels of `part`: "test_batch", "data_batch_1" or "train_rest_20k"."""
    with gzip.open(data / "cifar10" / f"{part}.bin.gz") as file:
        records = np.frombuffer(file.read(3073 * count), np.uint8).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32), records[:, 0]


def cifar10_normalised(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the ResNet-20 of the data folder takes."""
    return (images / 255 - CIFAR_MEAN[:, None, None]) / CIFAR_STD[:, None, None]


def photo(data: Path, name: str, size: int = 224) -> NDArray[np.float32]:
    """A photo as ImageNet networks take it: shorter side 256, centre crop, normalised, `[1, 3, size, size]`."""
    from PIL import Image

    with Image.open(data / "images" / name) as image:
        image = image.convert("RGB")
        scale = 256 / min(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
        left, top = (image.width - size) // 2, (image.height - size) // 2
        pixels = np.asarray(image.crop((left, top, left + size, top + size)), np.float32)
    normalised = (pixels / 255 - IMAGENET_MEAN) / IMAGENET_STD
    return np.ascontiguousarray(normalised.transpose(2, 0, 1)[None])


def photos(data: Path) -> NDArray[np.float32]:
    """The three photos, `[3, 3, 224, 224]`."""
    return np.concatenate([photo(data, name) for name in PHOTOS])


def class_names(data: Path) -> list[str]:
    """The 1000 ImageNet class names."""
    lines = (data / "images" / "synset_words.txt").read_text().splitlines()
    return [line.split(" ", 1)[1] for line in lines]
