"""What Arm's cores are called. Linux says only who made one and its number; the makers' manuals say the rest."""

from __future__ import annotations

_ARM = {
    0xC05: "Cortex-A5",
    0xC07: "Cortex-A7",
    0xC08: "Cortex-A8",
    0xC09: "Cortex-A9",
    0xC0D: "Cortex-A17",
    0xC0E: "Cortex-A17",
    0xC0F: "Cortex-A15",
    0xD01: "Cortex-A32",
    0xD02: "Cortex-A34",
    0xD03: "Cortex-A53",
    0xD04: "Cortex-A35",
    0xD05: "Cortex-A55",
    0xD06: "Cortex-A65",
    0xD07: "Cortex-A57",
    0xD08: "Cortex-A72",
    0xD09: "Cortex-A73",
    0xD0A: "Cortex-A75",
    0xD0B: "Cortex-A76",
    0xD0C: "Neoverse N1",
    0xD0D: "Cortex-A77",
    0xD0E: "Cortex-A76AE",
    0xD15: "Cortex-R82",
    0xD40: "Neoverse V1",
    0xD41: "Cortex-A78",
    0xD42: "Cortex-A78AE",
    0xD43: "Cortex-A65AE",
    0xD44: "Cortex-X1",
    0xD46: "Cortex-A510",
    0xD47: "Cortex-A710",
    0xD48: "Cortex-X2",
    0xD49: "Neoverse N2",
    0xD4A: "Neoverse E1",
    0xD4B: "Cortex-A78C",
    0xD4C: "Cortex-X1C",
    0xD4D: "Cortex-A715",
    0xD4E: "Cortex-X3",
    0xD4F: "Neoverse V2",
    0xD80: "Cortex-A520",
    0xD81: "Cortex-A720",
    0xD82: "Cortex-X4",
    0xD83: "Neoverse V3AE",
    0xD84: "Neoverse V3",
    0xD85: "Cortex-X925",
    0xD87: "Cortex-A725",
    0xD88: "Cortex-A520AE",
    0xD89: "Cortex-A720AE",
    0xD8E: "Neoverse N3",
    0xD8F: "Cortex-A320",
}
_APPLE = {
    0x20: "Icestorm (A14)",
    0x21: "Firestorm (A14)",
    0x22: "Icestorm (M1)",
    0x23: "Firestorm (M1)",
    0x24: "Icestorm (M1 Pro)",
    0x25: "Firestorm (M1 Pro)",
    0x28: "Icestorm (M1 Max)",
    0x29: "Firestorm (M1 Max)",
    0x30: "Blizzard (A15)",
    0x31: "Avalanche (A15)",
    0x32: "Blizzard (M2)",
    0x33: "Avalanche (M2)",
    0x34: "Blizzard (M2 Pro)",
    0x35: "Avalanche (M2 Pro)",
    0x36: "Sawtooth (A16)",
    0x37: "Everest (A16)",
    0x38: "Blizzard (M2 Max)",
    0x39: "Avalanche (M2 Max)",
    0x48: "Sawtooth (M3 Max)",
    0x49: "Everest (M3 Max)",
}
_QUALCOMM = {
    0x001: "Oryon",
    0x201: "Kryo",
    0x205: "Kryo",
    0x211: "Kryo",
    0x800: "Kryo 2xx Gold",
    0x801: "Kryo 2xx Silver",
    0x802: "Kryo 3xx Gold",
    0x803: "Kryo 3xx Silver",
    0x804: "Kryo 4xx Gold",
    0x805: "Kryo 4xx Silver",
    0xC00: "Falkor",
    0xC01: "Saphira",
}
_MAKERS: dict[int, tuple[str, dict[int, str]]] = {
    0x41: ("Arm", _ARM),
    0x42: ("Broadcom", {0x100: "Brahma-B53", 0x516: "ThunderX2"}),
    0x43: (
        "Cavium",
        {0x0A0: "ThunderX", 0x0A1: "ThunderX", 0x0AF: "ThunderX2", 0x0B0: "Octeon TX2", 0x0B8: "ThunderX3"},
    ),
    0x46: ("Fujitsu", {0x001: "A64FX", 0x003: "Monaka"}),
    0x48: ("HiSilicon", {0xD01: "TaiShan v110", 0xD02: "TaiShan v120", 0xD40: "Cortex-A76"}),
    0x4E: ("NVIDIA", {0x000: "Denver", 0x003: "Denver 2", 0x004: "Carmel", 0x010: "Olympus"}),
    0x50: ("APM", {0x000: "X-Gene"}),
    0x51: ("Qualcomm", _QUALCOMM),
    0x53: ("Samsung", {0x001: "Exynos M1", 0x002: "Exynos M3", 0x003: "Exynos M4", 0x004: "Exynos M5"}),
    0x56: ("Marvell", {}),
    0x61: ("Apple", _APPLE),
    0x6D: ("Microsoft", {0xD49: "Azure Cobalt 100"}),
    0x70: ("Phytium", {number: f"FTC{number:x}" for number in (0x303, 0x660, 0x661, 0x662, 0x663, 0x664, 0x862)}),
    0xC0: ("Ampere", {0xAC3: "Ampere-1", 0xAC4: "Ampere-1A"}),
}
"""Of each maker: its name, and its cores by number. Graviton's and Grace's cores are Arm's own: Graviton 2 has Neoverse
N1, 3 has V1, 4 and Grace have V2.
"""


def names_in(cpuinfo: str) -> str:
    """What the cores in a text like /proc/cpuinfo's are called, each kind once; empty where none is Arm's."""
    names: dict[str, None] = {}
    maker = -1
    for line in cpuinfo.splitlines():
        word, _, value = line.partition(":")
        if word.strip() == "CPU implementer":
            maker = _number(value)
        elif word.strip() == "CPU part" and maker >= 0:
            names[_name(maker, _number(value))] = None
    return " and ".join(names)


def _name(maker: int, part: int) -> str:
    who, cores = _MAKERS.get(maker, (f"maker 0x{maker:x}", {}))
    if part not in cores:
        return f"{who}, part 0x{max(part, 0):03x}"
    core = cores[part]
    return core if who == "Arm" or core.startswith(who) else f"{who} {core}"


def _number(text: str) -> int:
    try:
        return int(text.strip(), 0)
    except ValueError:
        return -1
