"""scikit-learn's, gradient boosting's, shipped, quantised and 16-bit files of the collection."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from inputs import tabular

OPSET = 17


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


def write_shipped(_export, path, _samples):
    """A file among onnxruntime's own examples."""
    path.write_bytes((Path(onnxruntime.__file__).parent / "datasets" / "logreg_iris.onnx").read_bytes())


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


def in_real_numbers(path):
    """What the importer reads of a network with QuantizeLinear and DequantizeLinear around float operators; none of another.

    Weights are what their integers stand for. Activations are not rounded, and clamped only where the smallest integer stands for zero.
    """
    model = onnx.load(path)
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    made = {n.output[0]: n for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] not in constants}
    if not made or any(n.op_type.startswith(("QLinear", "ConvInteger", "MatMulInteger")) for n in model.graph.node):
        return None
    nodes = []
    for n in model.graph.node:
        if n.op_type == "DequantizeLinear" and n.input[0] in made:
            nodes.append(onnx.helper.make_node("Identity", n.input[:1], n.output[:1]))
        elif n.output[0] in made:
            nodes.append(clamped(model, n, float(constants[n.input[1]]), constants[n.input[2]]))
        else:
            nodes.append(n)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model.SerializeToString()


def clamped(model, quantise, scale, zero):
    """What stands for a QuantizeLinear."""
    limits = np.iinfo(zero.dtype)
    if zero != limits.min:
        return onnx.helper.make_node("Identity", quantise.input[:1], quantise.output[:1])
    bounds = {"low": 0.0, "high": (limits.max - float(zero)) * scale}
    for name, bound in bounds.items():
        tensor = onnx.numpy_helper.from_array(np.array(bound, np.float32), f"{quantise.output[0]}.{name}")
        model.graph.initializer.append(tensor)
    names = [f"{quantise.output[0]}.{name}" for name in bounds]
    return onnx.helper.make_node("Clip", [quantise.input[0], *names], quantise.output[:1])
