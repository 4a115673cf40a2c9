"""PyTorch's part of the collection: torchvision, timm and own networks, through both exporters."""

import warnings

import nets
import numpy as np
import timm
import torch
import torchvision
from torch import nn

OPSETS = {"trace": 17, "dynamo": 20}


def network(export):
    """The module, with random weights and the statistics of batch normalisation of what it sees."""
    torch.manual_seed(1)
    if export.source == "timm":
        size = {"img_size": 64} if export.name.startswith(("vit", "mixer")) else {}
        net = timm.create_model(export.name, pretrained=False, exportable=True, **size)
    elif export.source == "torchvision":
        net = torchvision_network(export.name)
    else:
        net = getattr(nets, export.name)()
    return net


def torchvision_network(name):
    options = {}
    if name in ("googlenet", "inception_v3"):
        options = {"init_weights": True}
    if name in ("fcn_resnet50", "ssdlite320_mobilenet_v3_large"):
        options = {"weights_backbone": None}
    if name == "r3d_18":
        return torchvision.models.video.r3d_18(weights=None)
    if name.startswith("ssdlite"):
        return torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, **options)
    if name == "fcn_resnet50":
        net = torchvision.models.segmentation.fcn_resnet50(weights=None, **options)
        return nets.Net(lambda own, x: own.net(x)["out"], net=net)
    return getattr(torchvision.models, name)(weights=None, **options)


def settle(net, x):
    """Batch normalisation gets the mean and variance of `x`; everything else stays as it is in inference."""
    net.eval()
    norms = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = None
        norm.reset_running_stats()
        norm.train()
    with torch.no_grad():
        net(*x)
    net.eval()
    return net


def write(export, path, samples):
    """Writes the ONNX file; `samples` is `[N, ...shape]`."""
    x = torch.from_numpy(np.array(samples))
    count = 2 if export.name == "siamese" else 1
    detector = export.name.startswith("ssdlite")
    net = network(export).eval()
    if not detector:
        net = settle(net, [x[: 16 if x[0].numel() > 30_000 else 64]] * count)
    example = tuple([x[:1]] * count)
    save(net, example, path, export.exporter)


def save(net, example, path, exporter):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            torch.onnx.export(net, example, path, dynamo=True, opset_version=OPSETS["dynamo"], external_data=False, verbose=False)
        else:
            torch.onnx.export(net, example, path, dynamo=False, opset_version=OPSETS["trace"], do_constant_folding=True)
