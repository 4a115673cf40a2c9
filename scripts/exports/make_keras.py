"""Keras's part of the collection: networks of `keras.applications` and of Keras's examples, through tf2onnx, channels last."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tf2onnx  # noqa: E402
from keras import Input, Model, Sequential, applications, layers, utils  # noqa: E402

OPSET = 17
APPLICATIONS = {
    "mobilenet": lambda shape: applications.MobileNet(shape, alpha=0.25, weights=None, classes=10),
    "mobilenet_v2": lambda shape: applications.MobileNetV2(shape, alpha=0.35, weights=None, classes=10),
    "resnet50": lambda shape: applications.ResNet50(weights=None, input_shape=shape, classes=10),
    "xception": lambda shape: applications.Xception(weights=None, input_shape=shape, classes=10),
    "efficientnet_b0": lambda shape: applications.EfficientNetB0(weights=None, input_shape=shape, classes=10),
}


def mnist_convnet(shape):
    convs = [layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(2), layers.Conv2D(64, 3, activation="relu")]
    head = [layers.MaxPooling2D(2), layers.Flatten(), layers.Dropout(0.5), layers.Dense(10, activation="softmax")]
    return Sequential([Input(shape), *convs, *head])


def timeseries_cnn(shape):
    blocks = [[layers.Conv1D(64, 3, padding="same"), layers.BatchNormalization(), layers.ReLU()] for _ in range(3)]
    return Sequential([Input(shape), *sum(blocks, []), layers.GlobalAveragePooling1D(), layers.Dense(2, activation="softmax")])


def lstm(shape):
    return Sequential([Input(shape), layers.LSTM(32), layers.Dense(1)])


def unet(shape):
    """The segmentation example: separable convolutions, residuals, up-sampling."""
    start = Input(shape)
    x = layers.Activation("relu")(layers.BatchNormalization()(layers.Conv2D(16, 3, strides=2, padding="same")(start)))
    before = x
    for width in (32, 64):
        for _ in range(2):
            x = layers.Activation("relu")(x)
            x = layers.BatchNormalization()(layers.SeparableConv2D(width, 3, padding="same")(x))
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        before = x = layers.add([x, layers.Conv2D(width, 1, strides=2, padding="same")(before)])
    for width in (64, 32, 16):
        for _ in range(2):
            x = layers.Activation("relu")(x)
            x = layers.BatchNormalization()(layers.Conv2DTranspose(width, 3, padding="same")(x))
        x = layers.UpSampling2D(2)(x)
        before = x = layers.add([x, layers.Conv2D(width, 1, padding="same")(layers.UpSampling2D(2)(before))])
    return Model(start, layers.Conv2D(3, 3, activation="softmax", padding="same")(x))


def normalized_dense(shape):
    start = Input(shape)
    x = layers.Normalization(mean=np.linspace(-2, 30, shape[0]), variance=np.linspace(0.5, 90, shape[0]))(start)
    for width in (64, 64):
        x = layers.Dense(width, activation="relu")(x)
    return Model(start, layers.Dense(1)(x))


def autoencoder(shape):
    down = [layers.Conv2D(32, 3, activation="relu", padding="same"), layers.MaxPooling2D(2, padding="same")] * 1
    down += [layers.Conv2D(32, 3, activation="relu", padding="same"), layers.MaxPooling2D(2, padding="same")]
    up = [layers.Conv2DTranspose(32, 3, strides=2, activation="relu", padding="same") for _ in range(2)]
    return Sequential([Input(shape), *down, *up, layers.Conv2D(1, 3, activation="sigmoid", padding="same")])


def two_heads(shape):
    start = Input(shape)
    x = layers.Conv2D(16, 3, activation="relu")(start)
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(32, 3, strides=2, activation=layers.LeakyReLU(0.1))(x))
    return Model(start, [layers.Dense(1, name="age")(x), layers.Dense(2, name="place")(x)])


def settle(model, x):
    """Batch normalisation gets the mean and variance of `x`."""
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.5
    for _ in range(12):
        model(x, training=True)


def write(export, path, samples):
    utils.set_random_seed(1)
    make = APPLICATIONS.get(export.name) or globals()[export.name]
    model = make(export.shape)
    settle(model, np.array(samples[:16]))
    signature = [tf.TensorSpec((None, *export.shape), tf.float32, name="input")]
    call = tf.function(lambda x: model(x, training=False), input_signature=signature)
    tf2onnx.convert.from_function(call, input_signature=signature, opset=OPSET, output_path=str(path))
