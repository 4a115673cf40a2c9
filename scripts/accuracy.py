"""`make accuracy`: private runs of real networks on real data, compared with the float networks, image by image.

usage: accuracy.py [--count N] [--only NAME]... [--backend NAME]...

Needs the data folder (see shared_data.py). Every answer comes from a private run between a server and a client over mutual TLS;
the float answers are onnxruntime's. Ends with a table; exits with 1 if a network falls below its line.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import shared_data
import tacit

BACKENDS = ("cheetah", "sci-he", "dealt", "fss")
# Of which the material comes from a third process.
DEALT = ("dealt", "fss")
# Whose offline phases take so long that a tenth of the images has to do.
SLOW = ("sci-he",)
Images = tuple[NDArray[np.float32], NDArray[np.integer] | None]


@dataclass(frozen=True)
class Task:
    """A network, the images it is asked for, the samples it is calibrated on, and the least agreement with float."""

    name: str
    onnx: str
    images: Callable[[Path, int], Images]
    samples: Callable[[Path], NDArray[np.float32]]
    count: int
    least: float


def cifar(data: Path, part: str, count: int, normalised: bool) -> Images:
    images, labels = shared_data.cifar10(data, part, count)
    return (shared_data.cifar10_normalised(images) if normalised else images), labels


TASKS = (
    Task(
        "MNIST CNN", "mnist.onnx",
        lambda d, n: shared_data.mnist(d, "t10k", n), lambda d: shared_data.mnist(d, "train", 64)[0], 200, 0.995,
    ),
    Task(
        "ResNet-8 CIFAR-10", "mlperftiny_resnet8_cifar10.onnx",
        lambda d, n: cifar(d, "test_batch", n, False), lambda d: cifar(d, "data_batch_1", 64, False)[0], 100, 0.98,
    ),
    Task(
        "ResNet-20 CIFAR-10", "resnet20_cifar10.onnx",
        lambda d, n: cifar(d, "test_batch", n, True), lambda d: cifar(d, "data_batch_1", 64, True)[0], 100, 0.98,
    ),
    Task(
        "SqueezeNet 1.1", "squeezenet1.1_fp32.onnx",
        lambda d, n: (shared_data.photos(d)[:n], None), shared_data.photos, 3, 1.0,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What came out: agreement of the private answers with float, accuracy of both, distance from the reference."""

    task: Task
    backend: str
    images: int
    agree: int
    private_right: int | None
    float_right: int | None
    max_error: float
    seconds: float
    online_s: float


def float_answers(path: Path, images: NDArray[np.float32]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(path)
    name = session.get_inputs()[0].name
    return np.stack([session.run(None, {name: image[None]})[0].reshape(-1) for image in images])


@contextlib.contextmanager
def client_of(model: tacit.Model, backend: str) -> Iterator[tacit.Client]:
    """A client of a server of its own; of the dealer of both where the back end has one."""
    with contextlib.ExitStack() as stack:
        given = {}
        if backend in DEALT:
            dealer = stack.enter_context(tacit.dealer())
            given = {"keys": dealer.keys, "dealer": dealer}
        server = stack.enter_context(tacit.serve(model, backend=backend, **given))
        yield stack.enter_context(server.client(backend=backend))


def run(task: Task, data: Path, count: int, backend: str) -> Result:
    images, labels = task.images(data, count)
    path = data / "models" / task.onnx
    floats = float_answers(path, images)
    model = tacit.import_onnx(path, calibrate=task.samples(data), name=task.name)
    # Once, and not on the clock.
    lowered = model.lower(backend)
    start = time.monotonic()
    agree, right, max_error = 0, 0, 0.0
    with client_of(model, backend) as client:
        for number, (image, wanted) in enumerate(zip(images, floats, strict=True), 1):
            answer = client.infer(image)
            agree += int(answer.argmax() == wanted.argmax())
            right += int(labels is not None and answer.argmax() == labels[number - 1])
            max_error = float(np.maximum(max_error, np.abs(answer - lowered.reference(image)).max() / np.ptp(wanted)))
            elapsed = time.monotonic() - start
            print(f"\r{task.name}, {backend}: {number}/{len(images)} agree {agree}, {elapsed:.0f} s", end="", flush=True)
        online = [cost.client.wall_s for cost in client.costs if cost.phase == "online"]
    print()
    float_right = None if labels is None else int((floats.argmax(1) == labels).sum())
    return Result(task, backend, len(images), agree, right if labels is not None else None, float_right, max_error,
                  elapsed, float(np.mean(online)))  # fmt: skip


def table(results: list[Result]) -> bool:
    """Prints the table; true if every network keeps its line."""
    print(f"\n{'network':18} {'back end':8} {'images':>6} {'same class as float':>20} {'needed':>7} {'right: private':>15} {'float':>6} "
          f"{'max distance from reference':>28} {'online/image':>13} {'total':>7}")  # fmt: skip
    good = True
    for r in results:
        rate = r.agree / r.images
        good &= rate >= r.task.least
        private, floats = ("-" if v is None else f"{v / r.images:.1%}" for v in (r.private_right, r.float_right))
        print(f"{r.task.name:18} {r.backend:8} {r.images:6} {r.agree:12} = {rate:5.1%} {r.task.least:7.1%} {private:>15} {floats:>6} "
              f"{r.max_error:20.3%} of range {r.online_s:11.3f} s {r.seconds:5.0f} s")  # fmt: skip
    print("Same class: private answer against onnxruntime. Distance: largest difference of a logit from the fixed-point reference.\n"
          "Calibration: training images; for SqueezeNet the three photos themselves, since the data folder has no others.")  # fmt: skip
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, help="fewer images per network, for a quick look")
    parser.add_argument("--only", action="append", help="networks whose name contains this", default=[])
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="these back ends only")
    options = parser.parse_args()
    data = shared_data.folder()
    if data is None:
        print("the data folder is missing: ../shared/data, or set TACIT_DATA (see scripts/shared_data.py)", file=sys.stderr)
        return 2
    chosen = [t for t in TASKS if not options.only or any(o.lower() in t.name.lower() for o in options.only)]

    def count(task: Task, backend: str) -> int:
        most = max(task.count // 10, min(task.count, 3)) if backend in SLOW else task.count
        return min(most, options.count or most)

    pairs = [(task, backend) for task in chosen for backend in options.backend or BACKENDS]
    results = [run(task, data, count(task, backend), backend) for task, backend in pairs]
    return 0 if table(results) else 1


if __name__ == "__main__":
    sys.exit(main())
