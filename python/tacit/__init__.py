"""Private neural-network inference.

The server never sees the input; the client never sees the weights.

    model = tacit.import_onnx("net.onnx", calibrate=samples)
    with tacit.serve(model) as server, server.client() as client:
        client.prepare(4)           # offline work for four inputs, ahead of time
        answer = client.infer(x)    # online: fast, few bytes

A model is imported once and lowered for a back end, "cheetah" unless another one is named (`tacit.backends()` lists them):
`model.lower("cheetah", frac_bits=12)`, or `backend=` and `options=` wherever a model is made, served, opened or measured.

Arrays are numpy arrays: float32 inputs of `model.input_shape` (or a batch with one more axis in front). Whatever goes wrong
raises `TacitError` with a message that says what and where; a call that does not fit a function's signature is a `TypeError`, as everywhere.
"""

from tacit._bench import bench
from tacit._client import Client, Figures, Notice, PhaseCost, RowsRefused, notify
from tacit._dealer import Dealer, dealer
from tacit._lowered import Backend, Lowered, backends
from tacit._model import Model, import_onnx
from tacit._server import Server, make_keys, serve
from tacit._tacit import AnswerRefused, TacitError, __version__

__all__ = [
    "AnswerRefused",
    "Backend",
    "Client",
    "Dealer",
    "Figures",
    "Lowered",
    "Model",
    "Notice",
    "PhaseCost",
    "RowsRefused",
    "Server",
    "TacitError",
    "__version__",
    "backends",
    "bench",
    "dealer",
    "import_onnx",
    "make_keys",
    "notify",
    "serve",
]
