"""Inputs outside of what was declared are refused, in the network's own units, wherever an input is taken."""

import numpy as np
import pytest
from test_cli import serving

import nets
import tacit

SCALES = {"plain": None, "scaled": (1.0, 100.0, -0.01, 1.0)}


def network(scales):
    """Four features, each scaled first where that is asked for."""
    params = {"w": nets.weights(3, 4)}
    nodes = [nets.node("Gemm", "x w", "y", transB=1)]
    if scales:
        nodes = [nets.node("Mul", "x s", "m"), nets.node("Gemm", "m w", "y", transB=1)]
        params["s"] = np.array(scales, np.float32)
    return nets.Net("ranges", (4,), nodes, params)


@pytest.fixture(scope="module", params=SCALES)
def place(request, tmp_path_factory, cli):
    """A model that accepts -1 to 1, in a folder with keys and inputs: one inside, and one outside in the third feature."""
    folder = tmp_path_factory.mktemp(request.param)
    net = network(SCALES[request.param])
    (folder / "net.onnx").write_bytes(net.to_bytes())
    np.save(folder / "samples.npy", net.samples(32))
    cli("model", "import", "net.onnx", "--calibrate", "samples.npy", "--range=-1,1", "-o", "net.tacit", cwd=folder)
    cli("keys", "init", "keys", "--client", "alice", cwd=folder)
    np.save(folder / "inside.npy", np.array([[1, -1, 1, -1]], np.float32))
    np.save(folder / "outside.npy", np.array([[0, 0, 1.5, 0]], np.float32))
    return folder


def says_what_is_wrong(error):
    text = str(error)
    return "value 2 is 1.5, the model accepts -1 to 1" in text and "--calibrate" in text and "--range" in text


def test_the_program_refuses_it_in_the_clear_and_in_private(cli, binary, place):
    assert cli("model", "run", "net.tacit", "inside.npy", cwd=place).stdout
    assert says_what_is_wrong(cli("model", "run", "net.tacit", "outside.npy", cwd=place, ok=False).stderr)
    told = cli("model", "inspect", "net.tacit", cwd=place).stdout
    assert "declared of the network's own inputs: [-1.0, 1.0]" in told
    checked = cli("model", "check", "net.tacit", "--data", "inside.npy", "--data", "outside.npy", cwd=place).stdout
    assert "1 compared, 1 refused as out of range" in checked
    with serving(binary, place, model="net.tacit") as address:
        who = ("--server", address, "--client", "alice")
        assert cli("infer", "inside.npy", *who, cwd=place).stdout
        assert says_what_is_wrong(cli("infer", "outside.npy", *who, cwd=place, ok=False).stderr)


def test_the_package_refuses_it_everywhere(place):
    model = tacit.Model.load(place / "net.tacit")
    inside, outside = np.load(place / "inside.npy"), np.load(place / "outside.npy")
    assert model.spec["input"]["declared"] == [[-1.0, 1.0]]
    with tacit.serve(model) as server, server.client() as client:
        for take in (model.run, model.reference, client.infer):
            assert take(inside).shape == (1, 3)
            with pytest.raises(tacit.TacitError) as error:
                take(outside)
            assert says_what_is_wrong(error.value), error.value
            with pytest.raises(tacit.TacitError) as error:
                take(model.normalise(outside), normalised=True)
            assert "value 2 is 1.5" in str(error.value)


def test_pixels_have_the_range_of_their_own_channel():
    nodes = [nets.node("Flatten", "x", "f", axis=1), nets.node("Gemm", "f w", "y", transB=1)]
    net = nets.Net("colours", (3, 2, 2), nodes, {"w": nets.weights(4, 12)})
    model = tacit.import_onnx(net.to_bytes(), pixel_scale=1 / 255, mean=[0.0, 0.5, 100.0], std=[1.0, 0.5, 1.0])
    assert model.spec["input"]["declared"] == [[0.0, 1.0], [-1.0, 1.0], [-100.0, -99.0]]
    for value in (0, 255):
        assert model.run(np.full((3, 2, 2), value, np.uint8)).shape == (4,)
    x = model.normalise(np.zeros((3, 2, 2), np.uint8))
    x[0, 1, 0] = -50
    with pytest.raises(tacit.TacitError, match=r"value 2 is -50, the model accepts 0 to 1 \(at \[0, 1, 0\]\)"):
        model.run(x)
    # What stands in for samples lies in the range, so that a model can be checked by it.
    assert tacit.bench(model, runs=1, backend="clear")["runs"][0]["output"]["max_error"] < 1e-3
