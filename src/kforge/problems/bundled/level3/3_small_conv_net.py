"""Image classifier: three convolutions with pooling, then a linear layer."""

import torch
import torch.nn as nn

BATCH = 512
SIDE = 64
WIDTH = 64
CLASSES = 100

KFORGE = {
    "sizes": {
        "cpu": {"BATCH": 8, "SIDE": 32, "WIDTH": 16, "CLASSES": 10},
        "emulator": {"BATCH": 2, "SIDE": 16, "WIDTH": 8, "CLASSES": 10},
    },
    # With small inputs the biases alone decide the output.
    "distributions": ["natural", "scaled", "negated", "shifted", "extremes"],
}


class Model(nn.Module):
    def __init__(self, side, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, kernel_size=3, padding=1)
        self.conv3 = nn.Conv2d(2 * width, 4 * width, kernel_size=3, padding=1)
        self.classify = nn.Linear(4 * width * (side // 8) ** 2, classes)
        for layer in (self.conv1, self.conv2, self.conv3, self.classify):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.normal_(layer.bias, std=0.5)

    def forward(self, x):
        for conv in (self.conv1, self.conv2, self.conv3):
            x = torch.nn.functional.max_pool2d(torch.relu(conv(x)), kernel_size=2)
        return self.classify(x.flatten(1))


def get_inputs():
    return [torch.randn(BATCH, 3, SIDE, SIDE)]


def get_init_inputs():
    return [SIDE, WIDTH, CLASSES]
