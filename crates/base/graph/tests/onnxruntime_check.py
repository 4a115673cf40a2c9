"""Compares the float interpreter with onnxruntime on single operators and on networks of the zoo.

usage: onnxruntime_check.py DIR_OF_EXAMPLES [zoo names...]   (cargo build --release -p tacit-graph --examples)
needs: numpy, onnx, onnxruntime
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(5)


def const(name, value, kind=np.float32):
    return numpy_helper.from_array(np.asarray(value, dtype=kind), name)


def rand(name, *shape):
    return const(name, RNG.normal(size=shape))


def model(nodes, inits, shape, opset=13):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, *shape])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    if nodes[-1].op_type == "ArgMax":
        y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    graph = helper.make_graph(nodes, "case", [x], [y], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)


def single(op, shape, inits=(), opset=13, **attributes):
    node = helper.make_node(op, ["x", *[i.name for i in inits]], ["y"], **attributes)
    return model([node], list(inits), shape, opset)


def cases():
    img = (6, 11, 9)
    w = lambda o, i, *k: rand("w", o, i, *k)
    yield "conv", single("Conv", img, [w(4, 6, 3, 3), rand("b", 4)], pads=[1, 0, 2, 1], strides=[2, 1])
    yield "conv groups", single("Conv", img, [w(6, 2, 3, 2)], group=3, dilations=[2, 1])
    yield "conv depthwise", single("Conv", img, [w(6, 1, 3, 3)], group=6, pads=[1, 1, 1, 1])
    for auto in ["SAME_UPPER", "SAME_LOWER", "VALID"]:
        yield f"conv {auto}", single("Conv", img, [w(2, 6, 4, 3)], auto_pad=auto, strides=[2, 2])
        for pool in ["MaxPool", "AveragePool"]:
            yield f"{pool} {auto}", single(pool, img, kernel_shape=[3, 2], strides=[2, 2], auto_pad=auto)
    yield "conv 1d", single("Conv", (3, 17), [w(4, 3, 5)], strides=[2], pads=[2, 1])
    for ceil in [0, 1]:
        for stride in [1, 2, 3]:
            for pads in [[0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 1]]:
                args = dict(kernel_shape=[3, 3], strides=[stride, stride], pads=pads, ceil_mode=ceil)
                yield f"max pool {args}", single("MaxPool", img, **args)
                for count in [0, 1]:
                    if ceil and count:
                        continue  # onnxruntime releases disagree among themselves here
                    yield f"average pool {count} {args}", single("AveragePool", img, count_include_pad=count, **args)
    yield "max pool 1d", single("MaxPool", (3, 17), kernel_shape=[2], strides=[2])
    for op in ["GlobalAveragePool", "GlobalMaxPool"]:
        yield op, single(op, img)
    bn = [rand("g", 6), rand("b", 6), rand("m", 6), const("v", RNG.uniform(0.5, 2, 6))]
    yield "batch norm", single("BatchNormalization", img, bn, epsilon=1e-3)
    yield "gemm", single("Gemm", (7,), [rand("w", 5, 7), rand("b", 5)], transB=1, alpha=0.5, beta=2.0)
    yield "matmul", single("MatMul", (7,), [rand("w", 7, 5)])
    for op in ["Add", "Sub", "Mul", "Div"]:
        for name, shape in [("scalar", ()), ("channel", (6, 1, 1)), ("batch", (1, 6, 1, 1)), ("full", (1, 6, 11, 9)), ("row", (9,))]:
            yield f"{op} {name}", single(op, img, [const("c", RNG.uniform(0.5, 2, shape))])
    back = helper.make_node("Sub", ["c", "x"], ["y"])
    yield "constant - x", model([back], [rand("c", 6, 1, 1)], img)
    for lo, hi in [(0, 6), (-0.5, 0.5), (0.2, None), (None, 0.3)]:
        inits, names = [], ["x"]
        for n, v in [("lo", lo), ("hi", hi)]:
            names.append("" if v is None else n)
            inits += [] if v is None else [const(n, v)]
        yield f"clip {lo} {hi}", model([helper.make_node("Clip", names, ["y"])], inits, img)
    yield "relu6 opset 7", single("Clip", img, opset=7, min=0.0, max=6.0)
    yield "leaky", single("LeakyRelu", img, alpha=0.1)
    yield "slice", single("Slice", img, [const("s", [1, -8], np.int64), const("e", [2**31 - 1, -1], np.int64), const("a", [2, 3], np.int64), const("t", [2, 3], np.int64)])
    yield "slice opset 7", single("Slice", img, opset=7, starts=[1], ends=[5], axes=[1])
    yield "pad", single("Pad", img, [const("p", [0, 1, 2, 0, 0, 3, 0, 1], np.int64)])
    yield "flatten", single("Flatten", img, axis=1)
    yield "reshape", single("Reshape", img, [const("s", [-1, 33, 18], np.int64)])
    yield "squeeze", single("Squeeze", (6, 1, 1), [const("a", [2, 3], np.int64)])
    yield "unsqueeze", single("Unsqueeze", (6,), [const("a", [-1], np.int64)])
    yield "transpose", single("Transpose", (6, 1, 9), perm=[0, 2, 1, 3])
    yield "mean", single("ReduceMean", img, axes=[2, 3], keepdims=0)
    yield "identity", single("Identity", img)
    yield "dropout", single("Dropout", img)
    yield "argmax", single("ArgMax", (9,), axis=1)
    chain = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "zeros"], ["n1"]),
        helper.make_node("Concat", ["n1", "minus"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
    ]
    inits = [const("zero", 0, np.int64), const("zeros", [0], np.int64), const("minus", [-1], np.int64)]
    yield "view", model(chain, inits, img)
    inception = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("LeakyRelu", ["x"], ["b"], alpha=0.2),
        helper.make_node("Concat", ["a", "b"], ["c"], axis=1),
        helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2]),
    ]
    yield "concat", model(inception, [w(3, 6, 1, 1)], img)


def run_ours(examples, path, x, folder):
    np.save(folder / "in.npy", x)
    done = subprocess.run([examples / "float", path, folder / "in.npy", folder / "out.npy"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return np.load(folder / "out.npy")


def main():
    examples = pathlib.Path(sys.argv[1])
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        todo = [(name, m.SerializeToString()) for name, m in cases()]
        for name in sys.argv[2:]:
            subprocess.run([examples / "zoo", name, folder / "zoo.onnx"], check=True)
            todo.append((name, (folder / "zoo.onnx").read_bytes()))
        for name, data in todo:
            (folder / "m.onnx").write_bytes(data)
            session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
            shape = [1, *session.get_inputs()[0].shape[1:]]
            x = RNG.normal(size=shape).astype(np.float32)
            want = session.run(None, {session.get_inputs()[0].name: x})[0].reshape(-1)
            try:
                got = run_ours(examples, folder / "m.onnx", x, folder).reshape(-1)
                close = got.shape == want.shape and np.allclose(got, want, rtol=1e-3, atol=1e-4 * max(1, np.abs(want).max()))
                note = "" if close else f"differs: {got.shape} {want.shape} {got[:4]} {want[:4]}"
            except RuntimeError as e:
                close, note = False, str(e)
            if not close:
                failed += 1
                print(f"FAIL {name}: {note}")
        print(f"{len(todo) - failed} of {len(todo)} agree with onnxruntime {ort.__version__}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
