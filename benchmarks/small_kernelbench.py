"""KernelBench's networks at sizes for an emulator: `python benchmarks/small_kernelbench.py KERNELBENCH FOLDER`.

Copies every problem of level 3 that its own constants can make small, with a declaration of such sizes behind it
(docs/problems.md). The others spell a network's widths or an image's size out in their text. The copies
are KernelBench's and stay where they are written.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

_LSTM: Mapping[str, object] = {
    "batch_size": 3,
    "sequence_length": 5,
    "input_size": 10,
    "hidden_size": 12,
    "num_layers": 3,
    "output_size": 7,
}
_GRU: Mapping[str, object] = {"batch_size": 3, "seq_len": 5, "input_size": 10, "hidden_size": 12, "num_layers": 3}
_GPT: Mapping[str, object] = {"batch_size": 2, "max_seqlen": 32, "seq_len": 19, "n_embd": 24, "n_head": 3}
_VLAD: Mapping[str, object] = {"batch_size": 3, "num_features": 10, "num_clusters": 5, "feature_size": 20}
_MAMBA: Mapping[str, object] = {
    "batch_size": 2,
    "seq_length": 16,
    "n_heads": 2,
    "d_head": 6,
    "d_state": 5,
    "block_len": 8,
}

_PAIR = re.compile(r"^(\w+), (\w+) = (\d+), (\d+)", re.MULTILINE)
"""Two constants in one assignment; sizes are those of constants that have one each."""

SIZES: Mapping[int, Mapping[str, object]] = {
    1: {"batch_size": 3, "input_size": 40, "layer_sizes": [48, 56], "output_size": 20},
    2: {"batch_size": 3, "input_size": 40, "hidden_layer_sizes": [72, 64], "output_size": 36},
    3: {"batch_size": 5, "input_size": 40, "hidden_layer_sizes": [24] * 16, "output_size": 28},
    4: {"batch_size": 3},
    6: {
        "batch_size": 2,
        "in_channels": 12,
        "height": 13,
        "width": 11,
        "out_1x1": 8,
        "reduce_3x3": 6,
        "out_3x3": 10,
        "reduce_5x5": 4,
        "out_5x5": 6,
        "pool_proj": 7,
    },
    8: {"batch_size": 1, "out_channels": 4},
    13: {"batch_size": 2, "num_input_features": 6, "num_output_features": 8, "height": 10, "width": 14},
    14: {"batch_size": 2, "num_layers": 4, "num_input_features": 6, "growth_rate": 5, "height": 9, "width": 11},
    17: {
        "batch_size": 2,
        "height": 11,
        "width": 13,
        "squeeze_channels": 4,
        "expand1x1_channels": 7,
        "expand3x3_channels": 9,
    },
    18: {"batch_size": 1, "height": 67, "width": 67, "num_classes": 10},
    21: {"batch_size": 1, "in_channels": 3, "out_channels": 4, "expand_ratio": 2},
    25: {"batch_size": 2, "input_channels": 12, "out_channels": 24, "height": 10, "width": 9},
    27: {"batch_size": 2, "image_height": 24, "image_width": 24, "block_widths": [8, 12, 16]},
    28: {"image_size": 16, "patch_size": 8, "dim": 24, "depth": 2, "heads": 3, "mlp_dim": 40},
    31: {"embed_dim": 24, "num_heads": 3, "image_height": 7, "image_width": 6},
    32: {"batch_size": 2, "embed_dim": 16, "num_heads": 2, "num_classes": 11},
    33: {"batch_size": 3, "input_size": 20, "hidden_size": 28, "output_size": 12},
    34: {"batch_size": 3, "input_size": 12, "hidden_size": 16, "output_size": 8, "sequence_length": 6},
    **dict.fromkeys((35, 36, 37, 38), _LSTM),
    **dict.fromkeys((39, 40, 41, 42), _GRU),
    **dict.fromkeys((43, 44), _GPT),
    45: {"batch_size": 2, "in_channels": 3, "height": 32, "width": 32, "features": 4},
    46: {**_VLAD, "ghost_clusters": 2},
    47: _VLAD,
    **dict.fromkeys((48, 49), _MAMBA),
    50: {"batch_size": 2, "max_seqlen": 24, "n_embd": 24, "n_head": 3},
}


def main(kernelbench: str, folder: str) -> None:
    """Write the copies."""
    home, target = Path(kernelbench), Path(folder) / "level3"
    level = next((place for place in (home / "KernelBench/level3", home / "level3") if place.is_dir()), None)
    if level is None:
        sys.exit(f"{home} has no level3: name a checkout of KernelBench")
    target.mkdir(parents=True, exist_ok=True)
    for number, sizes in SIZES.items():
        source = next(level.glob(f"{number}_*.py"))
        declared = f'\n\nKFORGE = {{"sizes": {{"emulator": {sizes!r}}}}}\n'
        (target / source.name).write_text(_PAIR.sub(r"\1 = \3\n\2 = \4", source.read_text()).rstrip() + declared)
    print(f"{len(SIZES)} problems in {target}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
