"""scikit-learn's, gradient boosting's, shipped, quantised and 16-bit files of `exports.py`."""

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx

OPSET = 17
# Files that packages ship; permissive licences. They are read and never kept here.
SHIPPED = {
    "magika": ("magika==1.0.3", "magika/models/standard_v3_3/model.onnx"),
    "silero_vad": ("silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx"),
    "iris_logreg": (None, "datasets/logreg_iris.onnx"),
    "rapidocr_det": ("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
    "rapidocr_cls": ("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    "rapidocr_rec": ("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
    "ddddocr": ("ddddocr==1.6.1", "ddddocr/common.onnx"),
    "ddddocr_det": ("ddddocr==1.6.1", "ddddocr/common_det.onnx"),
}


def classical(name):
    """The estimator, not yet fitted, and whether it classifies."""
    from sklearn.decomposition import PCA
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
    from sklearn.svm import SVC, LinearSVC

    return {
        "logistic_regression": lambda: LogisticRegression(max_iter=5000),
        "scaler_logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
        "linear_regression": LinearRegression,
        "mlp_classifier": lambda: MLPClassifier((64, 32), max_iter=300, random_state=1),
        "scaler_mlp_regressor": lambda: make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(32,), activation="tanh", max_iter=2000, random_state=1)),
        "normalizer_linear_svc": lambda: make_pipeline(Normalizer(), LinearSVC()),
        "pca_ridge": lambda: make_pipeline(PCA(5), Ridge()),
        "minmax_mlp_logistic": lambda: make_pipeline(MinMaxScaler(), MLPClassifier((16,), activation="logistic", max_iter=2000, random_state=1)),
        "svc_rbf": SVC,
        "random_forest": lambda: RandomForestClassifier(20, random_state=1),
        "knn": KNeighborsClassifier,
    }[name]()


def boosted(name):
    if name == "xgboost":
        from xgboost import XGBClassifier

        return XGBClassifier(n_estimators=20, max_depth=3)
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=20, verbose=-1)


def tabular(width):
    """Training data of scikit-learn with so many columns: `[N, width]`, answers."""
    from sklearn import datasets

    load = {30: datasets.load_breast_cancer, 13: datasets.load_wine, 10: datasets.load_diabetes, 64: datasets.load_digits, 4: datasets.load_iris}
    x, y = load[width](return_X_y=True)
    order = np.random.default_rng(1).permutation(len(x))
    return x[order].astype(np.float32), y[order]


def write_classical(export, path, _samples):
    from skl2onnx import to_onnx

    x, y = tabular(export.shape[0])
    half = len(x) // 2
    if export.source == "boosting":
        from onnxmltools.convert import convert_lightgbm, convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType

        convert = convert_xgboost if export.name == "xgboost" else convert_lightgbm
        fitted = boosted(export.name).fit(x[:half], y[:half])
        model = convert(fitted, initial_types=[("input", FloatTensorType([None, *export.shape]))], target_opset=15)
    else:
        fitted = classical(export.name).fit(x[:half], y[:half])
        # Stated because skl2onnx 1.20 fails on its own default for LinearSVC.
        options = {id(fitted[-1]): {}} if "svc" in export.name and hasattr(fitted, "steps") else None
        model = to_onnx(fitted, x[:1], target_opset=OPSET, options=options)
    path.write_bytes(model.SerializeToString())


def write_shipped(export, path, _samples):
    package, inside = SHIPPED[export.name]
    if package is None:
        import onnxruntime

        path.write_bytes((Path(onnxruntime.__file__).parent / inside).read_bytes())
        return
    wheels = path.parent / "wheels" / package
    if not list(wheels.glob("*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels), package], check=True)
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        path.write_bytes(wheel.read(inside))


class Samples:
    """What onnxruntime calibrates a quantised network with."""

    def __init__(self, name, samples):
        self.rest = iter([{name: x[None]} for x in samples])

    def get_next(self):
        return next(self.rest, None)


def write_quantised(export, path, samples):
    from onnxruntime.quantization import QuantFormat, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    base = {"resnet18_qdq": "torchvision-resnet18", "mobilenet_v2_qlinear": "torchvision-mobilenet_v2"}.get(export.name, "own-mnist_example")
    prepared = path.with_suffix(".prepared.onnx")
    quant_pre_process(str(path.parent / f"{base}.onnx"), str(prepared))
    if export.name.endswith("dynamic"):
        quantize_dynamic(str(prepared), str(path))
    else:
        form = QuantFormat.QDQ if export.name.endswith("qdq") else QuantFormat.QOperator
        feed = Samples(onnx.load(prepared).graph.input[0].name, samples[:16])
        quantize_static(str(prepared), str(path), feed, quant_format=form)
    prepared.unlink()


def write_16_bit(export, path, _samples):
    from onnxconverter_common import float16

    base = {"resnet18_fp16": "torchvision-resnet18"}.get(export.name, "own-mnist_example")
    model = onnx.load(path.parent / f"{base}.onnx")
    onnx.save(float16.convert_float_to_float16(model, keep_io_types="mnist" in export.name), path)


WRITERS = {
    "scikit-learn": write_classical, "boosting": write_classical, "shipped": write_shipped, "quantised": write_quantised,
    "16-bit": write_16_bit,
}


def write(export, path, samples):
    WRITERS[export.source](export, path, samples)
