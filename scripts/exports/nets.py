"""Networks of the collection as people write them in PyTorch: the layers and idioms of tutorials, papers' code and repositories.

Each function returns a module that takes one batch of the shape in `collection.py` (`siamese` takes two).
"""

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    """A module whose `forward` is a function of it."""

    def __init__(self, forward, **parts):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part) if isinstance(part, nn.Module) else setattr(self, name, part)
        self.step = forward

    def forward(self, *x):
        return self.step(self, *x)


def block(inputs, outputs, kernel=3, stride=1, activation=nn.ReLU, **options):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False, **options)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), activation())


def block1d(inputs, outputs, kernel, stride=1, pool=1):
    layers = [nn.Conv1d(inputs, outputs, kernel, stride, kernel // 2), nn.BatchNorm1d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.MaxPool1d(pool)] if pool > 1 else []))


def lenet5():
    features = [nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2)]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))


def mnist_example():
    def forward(net, x):
        x = functional.relu(net.conv2(functional.relu(net.conv1(x))))
        x = torch.flatten(net.dropout1(functional.max_pool2d(x, 2)), 1)
        return functional.log_softmax(net.fc2(net.dropout2(functional.relu(net.fc1(x)))), dim=1)

    return Net(
        forward, conv1=nn.Conv2d(1, 32, 3, 1), conv2=nn.Conv2d(32, 64, 3, 1), dropout1=nn.Dropout(0.25),
        dropout2=nn.Dropout(0.5), fc1=nn.Linear(9216, 128), fc2=nn.Linear(128, 10),
    )


def mlp_tabular():
    def layer(inputs, outputs):
        return [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU(), nn.Dropout(0.3)]

    return nn.Sequential(nn.BatchNorm1d(20), *layer(20, 128), *layer(128, 64), nn.Linear(64, 1), nn.Sigmoid())


def autoencoder_dense():
    sizes = [30, 16, 8, 4, 8, 16]
    hidden = [layer for a, b in zip(sizes, sizes[1:]) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(16, 30))


def autoencoder_conv():
    down = [nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 7)]
    up = [nn.ConvTranspose2d(64, 32, 7), nn.ReLU(), nn.ConvTranspose2d(32, 16, 3, 2, 1, 1), nn.ReLU()]
    return nn.Sequential(*down, *up, nn.ConvTranspose2d(16, 1, 3, 2, 1, 1), nn.Sigmoid())


def vae_encoder():
    def forward(net, x):
        hidden = functional.relu(net.fc(x.view(x.size(0), -1)))
        return net.mu(hidden), net.logvar(hidden)

    return Net(forward, fc=nn.Linear(784, 400), mu=nn.Linear(400, 20), logvar=nn.Linear(400, 20))


def unet_of(up):
    """Three levels; `up(inputs, outputs)` doubles height and width."""

    def double(inputs, outputs):
        return nn.Sequential(block(inputs, outputs), block(outputs, outputs))

    def forward(net, x):
        a = net.down1(x)
        b = net.down2(net.pool(a))
        c = net.down3(net.pool(b))
        b = net.join2(torch.cat([b, net.up2(c)], dim=1))
        return net.out(net.join1(torch.cat([a, net.up1(b)], dim=1)))

    return Net(
        forward, pool=nn.MaxPool2d(2), down1=double(3, 16), down2=double(16, 32), down3=double(32, 64), up2=up(64, 32),
        join2=double(64, 32), up1=up(32, 16), join1=double(32, 16), out=nn.Conv2d(16, 2, 1),
    )


def unet():
    return unet_of(lambda a, b: nn.ConvTranspose2d(a, b, 2, stride=2))


def unet_bilinear():
    return unet_of(lambda a, b: nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(a, b, 1)))


def tcn():
    def causal(inputs, outputs, dilation):
        conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(inputs, outputs, 3, padding=2 * dilation, dilation=dilation))
        chop = Net(lambda net, x: x[:, :, : -2 * dilation].contiguous())
        return nn.Sequential(conv, chop, nn.ReLU(), nn.Dropout(0.2))

    def residual(inputs, outputs, dilation):
        body = nn.Sequential(causal(inputs, outputs, dilation), causal(outputs, outputs, dilation))
        short = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        return Net(lambda net, x: functional.relu(net.body(x) + net.short(x)), body=body, short=short)

    layers = nn.Sequential(residual(4, 16, 1), residual(16, 16, 2), residual(16, 16, 4))
    return Net(lambda net, x: net.fc(net.layers(x)[:, :, -1]), layers=layers, fc=nn.Linear(16, 3))


def ecg_cnn():
    layers = [block1d(1, 16, 7, pool=2), block1d(16, 32, 5, pool=2), block1d(32, 64, 3, pool=2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 5))


def lstm_classifier():
    return Net(lambda net, x: net.fc(net.lstm(x)[0][:, -1]), lstm=nn.LSTM(6, 32, batch_first=True), fc=nn.Linear(32, 4))


def gru_forecaster():
    return Net(lambda net, x: net.fc(net.gru(x)[0][:, -1, :]), gru=nn.GRU(3, 24, num_layers=2, batch_first=True), fc=nn.Linear(24, 1))


def siamese():
    tower = nn.Sequential(block(1, 16), nn.MaxPool2d(2), block(16, 32), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1568, 64))
    return Net(lambda net, a, b: net.fc(torch.abs(net.tower(a) - net.tower(b))), tower=tower, fc=nn.Linear(64, 1))


def dcgan_discriminator():
    leaky = lambda: nn.LeakyReLU(0.2, inplace=True)  # noqa: E731
    layers = [nn.Conv2d(3, 16, 4, 2, 1, bias=False), leaky()]
    for a, b in [(16, 32), (32, 64), (64, 128)]:
        layers += [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), leaky()]
    return nn.Sequential(*layers, nn.Conv2d(128, 1, 4, 1, 0, bias=False), nn.Sigmoid(), nn.Flatten())


def dcgan_generator():
    layers = [nn.ConvTranspose2d(64, 64, 4, 1, 0, bias=False), nn.BatchNorm2d(64), nn.ReLU(True)]
    for a, b in [(64, 32), (32, 16)]:
        layers += [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh())


def dscnn_keywords():
    def separable(width):
        return nn.Sequential(block(width, width, groups=width), block(width, width, kernel=1))

    first = nn.Sequential(nn.Conv2d(1, 64, (10, 4), 2, (5, 1), bias=False), nn.BatchNorm2d(64), nn.ReLU())
    return nn.Sequential(first, *(separable(64) for _ in range(4)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))


def m5_audio():
    layers = [block1d(1, 32, 80, 16, pool=4), block1d(32, 32, 3, pool=4), block1d(32, 64, 3, pool=4)]

    def forward(net, x):
        x = net.layers(x)
        x = functional.avg_pool1d(x, x.shape[-1]).permute(0, 2, 1)
        return functional.log_softmax(net.fc(x), dim=2)

    return Net(forward, layers=nn.Sequential(*layers), fc=nn.Linear(64, 10))


def espcn():
    layers = [nn.Conv2d(1, 64, 5, 1, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 32, 3, 1, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(32, 9, 3, 1, 1), nn.PixelShuffle(3))


def fsrcnn():
    def conv(inputs, outputs, kernel):
        return [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), nn.PReLU(outputs)]

    middle = [layer for _ in range(4) for layer in conv(12, 12, 3)]
    return nn.Sequential(*conv(1, 56, 5), *conv(56, 12, 1), *middle, *conv(12, 56, 1), nn.ConvTranspose2d(56, 1, 9, 2, 4, 1))


def dncnn():
    layers = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), *(block(32, 32) for _ in range(6)), nn.Conv2d(32, 1, 3, padding=1)]
    return Net(lambda net, x: x - net.layers(x), layers=nn.Sequential(*layers))


def resnet20_cifar():
    """With the parameter-free short cuts of the CIFAR networks: every other pixel, and channels of zeros."""

    def residual(inputs, outputs):
        grow = (outputs - inputs) // 2

        def forward(net, x):
            short = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, grow, grow)) if grow else x
            return functional.relu(net.body(x) + short)

        second = [nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)]
        return Net(forward, body=nn.Sequential(block(inputs, outputs, stride=2 if grow else 1), *second))

    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    body = nn.Sequential(block(3, 16), *(residual(a, b) for a, b in zip(widths, widths[1:])))

    def forward(net, x):
        x = net.body(x)
        return net.fc(functional.avg_pool2d(x, int(x.size(3))).view(x.size(0), -1))

    return Net(forward, body=body, fc=nn.Linear(64, 10))


def vgg16_cifar():
    layers, inputs = [], 3
    for width in [64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0]:
        layers += [block(inputs, width)] if width else [nn.MaxPool2d(2, 2)]
        inputs = width or inputs
    return nn.Sequential(*layers, nn.AvgPool2d(1, 1), nn.Flatten(), nn.Linear(512, 10))


def eegnet():
    def separable(a, b):
        return [nn.Conv2d(a, a, (1, 16), padding=(0, 8), groups=a, bias=False), nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b), nn.ELU()]

    first = [nn.Conv2d(1, 8, (1, 64), padding=(0, 32), bias=False), nn.BatchNorm2d(8)]
    space = [nn.Conv2d(8, 16, (22, 1), groups=8, bias=False), nn.BatchNorm2d(16), nn.ELU(), nn.AvgPool2d((1, 4)), nn.Dropout(0.5)]
    return nn.Sequential(*first, *space, *separable(16, 16), nn.AvgPool2d((1, 8)), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 4))


def text_cnn():
    def forward(net, x):
        x = net.embedding(x.long()).transpose(1, 2)
        return net.fc(torch.cat([functional.relu(conv(x)).max(dim=2)[0] for conv in net.convs], 1))

    convs = nn.ModuleList(nn.Conv1d(32, 16, k) for k in (3, 4, 5))
    return Net(forward, embedding=nn.Embedding(1000, 32), convs=convs, fc=nn.Linear(48, 2))


def dqn_atari():
    convs = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU())
    head = nn.Sequential(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6))
    return Net(lambda net, x: net.head(net.convs(x / 255.0).reshape(x.size(0), -1)), convs=convs, head=head)


def ppo_policy():
    return nn.Sequential(nn.Linear(11, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))


def style_transfer():
    def layer(inputs, outputs, kernel, stride):
        pad = nn.ReflectionPad2d(kernel // 2)
        return nn.Sequential(pad, nn.Conv2d(inputs, outputs, kernel, stride), nn.InstanceNorm2d(outputs, affine=True), nn.ReLU())

    up = nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), layer(32, 16, 3, 1))
    return nn.Sequential(layer(3, 16, 9, 1), layer(16, 32, 3, 2), up, nn.ReflectionPad2d(4), nn.Conv2d(16, 3, 9))


def pointnet():
    """Without the learned transforms, as many use it: shared layers for each point, then the maximum."""
    points = nn.Sequential(block1d(3, 64, 1), block1d(64, 128, 1), block1d(128, 256, 1))
    head = nn.Sequential(nn.Linear(256, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10))

    def forward(net, x):
        x = torch.max(net.points(x), 2, keepdim=True)[0].view(-1, 256)
        return functional.log_softmax(net.head(x), dim=1)

    return Net(forward, points=points, head=head)


def tabular_embeddings():
    """Four numbers, and two categories that are looked up."""

    def forward(net, x):
        kinds = x[:, 4:].long()
        return net.head(torch.cat([x[:, :4], net.first(kinds[:, 0]), net.second(kinds[:, 1])], dim=1))

    head = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))
    return Net(forward, first=nn.Embedding(10, 4), second=nn.Embedding(10, 4), head=head)


def yolo_tiny():
    """Boxes are decoded in the file: sigmoid and exponential, joined along the last axis."""
    leaky = lambda: nn.LeakyReLU(0.1)  # noqa: E731
    layers = []
    for a, b in [(3, 16), (16, 32), (32, 64), (64, 128)]:
        layers += [block(a, b, activation=leaky), nn.MaxPool2d(2)]

    def forward(net, x):
        x = net.layers(x).view(x.size(0), 3, 9, 4, 4).permute(0, 1, 3, 4, 2).contiguous()
        return torch.cat([torch.sigmoid(x[..., :2]), torch.exp(x[..., 2:4]), torch.sigmoid(x[..., 4:])], -1)

    return Net(forward, layers=nn.Sequential(*layers, nn.Conv2d(128, 27, 1)))


def transformer_classifier():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Net(lambda net, x: net.fc(net.encoder(net.inner(x)).mean(dim=1)), inner=nn.Linear(8, 32), encoder=encoder, fc=nn.Linear(32, 3))


def face_embedding():
    def conv(a, b, stride):
        return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.PReLU(b))

    layers = nn.Sequential(conv(3, 32, 2), conv(32, 64, 2), conv(64, 128, 2), nn.Flatten(), nn.Linear(4608, 128), nn.BatchNorm1d(128))
    return Net(lambda net, x: functional.normalize(net.layers(x)), layers=layers)


def heatmap_hourglass():
    def forward(net, x):
        x = net.first(x)
        low = net.low(functional.max_pool2d(x, 2))
        return net.out(x + functional.interpolate(low, scale_factor=2, mode="nearest"))

    return Net(forward, first=block(3, 32, stride=2), low=nn.Sequential(block(32, 32), block(32, 32)), out=nn.Conv2d(32, 5, 1))
