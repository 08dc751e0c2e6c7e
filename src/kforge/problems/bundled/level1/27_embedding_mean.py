"""Mean of the embeddings of each bag of tokens: rows of a table, read in no order."""

import torch
import torch.nn as nn

BAGS = 65536
TOKENS = 9
WORDS = 50000
FEATURES = 512

KFORGE = {
    "sizes": {
        "cpu": {"BAGS": 1024, "TOKENS": 9, "WORDS": 5000, "FEATURES": 128},
        "emulator": {"BAGS": 40, "TOKENS": 7, "WORDS": 300, "FEATURES": 36},
    },
}


class Model(nn.Module):
    def __init__(self, words, features):
        super().__init__()
        self.table = nn.Embedding(words, features)

    def forward(self, tokens):
        return self.table(tokens).mean(dim=1)


def get_inputs():
    return [torch.randint(0, WORDS, (BAGS, TOKENS))]


def get_init_inputs():
    return [WORDS, FEATURES]
