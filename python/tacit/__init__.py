"""Private neural-network inference.

The server never sees the input; the client never sees the weights.

    model = tacit.import_onnx("net.onnx", calibrate=samples)
    with tacit.serve(model) as server:
        with tacit.Client(server.address, credentials=server.client_credentials) as client:
            client.prepare(4)           # offline work for four inputs, ahead of time
            answer = client.infer(x)    # online: fast, few bytes

Arrays are numpy arrays: float32 inputs of `model.input_shape` (or a batch with one more axis in front). Whatever goes wrong
raises `TacitError` with a message that says what and where.
"""

from tacit._model import Model
from tacit._tacit import TacitError

__all__ = ["Model", "TacitError"]
