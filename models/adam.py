"""What the training scripts in plain numpy share: Adam, with a rate that falls to zero as a quarter of a cosine wave."""

import numpy as np


class Adam:
    """Changes parameters (arrays by name) in place, `steps` times."""

    def __init__(self, parameters, rate, weight_decay, steps):
        self.parameters, self.rate, self.weight_decay, self.steps, self.step = parameters, rate, weight_decay, steps, 0
        self.mean, self.square = ({k: np.zeros_like(v) for k, v in parameters.items()} for _ in range(2))

    def change(self, gradients):
        rate = np.float32(self.rate * np.cos(np.pi / 2 * self.step / self.steps))
        self.step += 1
        for k, v in gradients.items():
            self.mean[k] += np.float32(0.1) * (v - self.mean[k])
            self.square[k] += np.float32(0.001) * (v * v - self.square[k])
            scale = np.sqrt(self.square[k] / np.float32(1 - 0.999**self.step)) + np.float32(1e-8)
            ratio = self.mean[k] / np.float32(1 - 0.9**self.step) / scale
            self.parameters[k] -= rate * (ratio + np.float32(self.weight_decay) * self.parameters[k])
