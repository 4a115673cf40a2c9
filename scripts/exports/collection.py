"""The collection: networks as practitioners bring them, written down before any was imported.

What a name means is in `make_torch.py` (torchvision, timm), `nets.py` (networks as people write them),
`make_keras.py` and `make_other.py`. Shapes are of one input, without the batch: `[C,H,W]` for PyTorch, `[H,W,C]` for
Keras. Images are small where the architecture allows it, so that importing is quick; the operators are those of the real size.
"""

from typing import NamedTuple


class Export(NamedTuple):
    """One file of the collection."""

    name: str
    # Where the network comes from: decides who makes it.
    source: str
    # Who writes the file. `trace` and `dynamo` are PyTorch's two exporters.
    exporter: str
    shape: tuple[int, ...]


def group(source: str, exporter: str, **shapes: tuple[int, ...]) -> list[Export]:
    return [Export(name, source, exporter, shape) for name, shape in shapes.items()]


def images(source: str, exporter: str, size: int, names: str) -> list[Export]:
    return [Export(name, source, exporter, (3, size, size)) for name in names.split()]


COLLECTION: list[Export] = [
    *images("torchvision", "trace", 224, "alexnet"),
    *images("torchvision", "dynamo", 224, "vgg11_bn"),
    *images("torchvision", "trace", 64, "resnet18 resnext50_32x4d mobilenet_v2 mobilenet_v3_small shufflenet_v2_x1_0"),
    *images("torchvision", "trace", 64, "densenet121 efficientnet_b0 googlenet convnext_tiny fcn_resnet50"),
    *images("torchvision", "dynamo", 64, "resnet50 squeezenet1_1 regnet_x_400mf mnasnet0_5"),
    *images("torchvision", "trace", 128, "inception_v3"),
    *images("torchvision", "trace", 320, "ssdlite320_mobilenet_v3_large"),
    *group("torchvision", "trace", r3d_18=(3, 8, 32, 32)),
    *images("timm", "trace", 64, "tf_mobilenetv3_small_minimal_100 efficientnet_lite0 hrnet_w18_small ghostnet_100"),
    *images("timm", "trace", 64, "res2net50_26w_4s vit_tiny_patch16_224"),
    *images("timm", "dynamo", 64, "repvgg_a0 darknet53 fbnetc_100 mobileone_s0 mixer_s32_224"),
    *group("own", "trace", lenet5=(1, 32, 32), mlp_tabular=(20,), autoencoder_conv=(1, 28, 28), unet_bilinear=(3, 32, 32)),
    *group("own", "trace", tcn=(4, 64), ecg_cnn=(1, 180), lstm_classifier=(50, 6), siamese=(1, 28, 28)),
    *group("own", "trace", dcgan_generator=(64, 1, 1), dscnn_keywords=(1, 49, 10), fsrcnn=(1, 24, 24)),
    *group("own", "trace", resnet20_cifar=(3, 32, 32), eegnet=(1, 22, 128), dqn_atari=(4, 84, 84), style_transfer=(3, 32, 32)),
    *group("own", "trace", pointnet=(3, 64), tabular_embeddings=(6,), yolo_tiny=(3, 64, 64)),
    *group("own", "dynamo", mnist_example=(1, 28, 28), autoencoder_dense=(30,), vae_encoder=(1, 28, 28), unet=(3, 32, 32)),
    *group("own", "dynamo", gru_forecaster=(24, 3), dcgan_discriminator=(3, 64, 64), m5_audio=(1, 2000), espcn=(1, 24, 24)),
    *group("own", "dynamo", dncnn=(1, 32, 32), vgg16_cifar=(3, 32, 32), text_cnn=(32,), ppo_policy=(11,)),
    *group("own", "dynamo", transformer_classifier=(32, 8), face_embedding=(3, 48, 48), heatmap_hourglass=(3, 64, 64)),
    *group("keras", "tf2onnx", mobilenet=(64, 64, 3), mobilenet_v2=(64, 64, 3), resnet50=(64, 64, 3), xception=(96, 96, 3)),
    *group("keras", "tf2onnx", efficientnet_b0=(64, 64, 3), mnist_convnet=(28, 28, 1), timeseries_cnn=(128, 1), lstm=(30, 4)),
    *group("keras", "tf2onnx", unet=(32, 32, 3), normalized_dense=(13,), autoencoder=(28, 28, 1), two_heads=(32, 32, 3)),
    *group("scikit-learn", "skl2onnx", logistic_regression=(30,), scaler_logistic=(13,), linear_regression=(10,)),
    *group("scikit-learn", "skl2onnx", mlp_classifier=(64,), scaler_mlp_regressor=(10,), normalizer_linear_svc=(30,)),
    *group("scikit-learn", "skl2onnx", pca_ridge=(10,), minmax_mlp_logistic=(13,), svc_rbf=(13,), random_forest=(30,), knn=(13,)),
    *group("boosting", "onnxmltools", xgboost=(30,), lightgbm=(30,)),
    *group("shipped", "as shipped", iris_logreg=(2,)),
    *group("quantised", "onnxruntime", resnet18_qdq=(3, 64, 64), mobilenet_v2_qlinear=(3, 64, 64), mnist_example_dynamic=(1, 28, 28)),
    *group("16-bit", "onnxconverter", resnet18_fp16=(3, 64, 64), mnist_example_fp16=(1, 28, 28)),
]


def identity(export: Export) -> str:
    """Its name in files and tables; `own-unet`."""
    return f"{export.source}-{export.name}"
