"""What a processor is called, from texts as Linux gives them."""

from __future__ import annotations

import pytest

from kforge.platforms.cpu import arm_cores, platform

pytestmark = pytest.mark.pure

INTEL = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Processor @ 2.90GHz
flags\t\t: fpu sse2 avx2
"""


def arm(*cores: tuple[int, int], model: str = "") -> str:
    """As arm64 kernels write it, for cores by maker and part."""
    return "\n".join(
        f"processor\t: {number}\n{model}BogoMIPS\t: 50.00\nFeatures\t: fp asimd evtstrm aes\n"
        f"CPU implementer\t: {maker:#x}\nCPU architecture: 8\nCPU variant\t: 0x3\n"
        f"CPU part\t: {part:#05x}\nCPU revision\t: 1\n"
        for number, (maker, part) in enumerate(cores)
    )


@pytest.mark.parametrize(
    ("cores", "name"),
    [
        ([(0x41, 0xD0C)] * 2, "Neoverse N1"),
        ([(0x41, 0xD40)], "Neoverse V1"),
        ([(0x41, 0xD4F)] * 4, "Neoverse V2"),
        ([(0x41, 0xD05)] * 4 + [(0x41, 0xD0B)] * 2, "Cortex-A55 and Cortex-A76"),
        ([(0x61, 0x22), (0x61, 0x23)], "Apple Icestorm (M1) and Apple Firestorm (M1)"),
        ([(0xC0, 0xAC3)], "Ampere-1"),
        ([(0x46, 0x001)], "Fujitsu A64FX"),
        ([(0x48, 0xD01)], "HiSilicon TaiShan v110"),
        ([(0x51, 0x001)], "Qualcomm Oryon"),
        ([(0x4E, 0x004)], "NVIDIA Carmel"),
        ([(0x41, 0xFFF)], "Arm, part 0xfff"),
        ([(0x99, 0x12)], "maker 0x99, part 0x012"),
    ],
)
def test_arm_cores_have_names(cores: list[tuple[int, int]], name: str) -> None:
    assert arm_cores.names_in(arm(*cores)) == name


@pytest.mark.parametrize("text", ["", INTEL, "CPU part\t: 0xd0c\n"])
def test_what_is_not_arms_has_none(text: str) -> None:
    assert arm_cores.names_in(text) == ""


def test_nonsense_is_no_error() -> None:
    assert (
        arm_cores.names_in("CPU implementer\t: x\nCPU part\t: y\nCPU implementer : 0x41\nCPU part : y")
        == "Arm, part 0x000"
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (arm((0x41, 0xD0C)), "Neoverse N1"),
        (arm((0x41, 0xD0C), model="model name\t: ARMv8 Processor rev 1 (v8l)\n"), "Neoverse N1"),
        (INTEL, "Intel(R) Xeon(R) Processor @ 2.90GHz"),
    ],
)
def test_the_platform_names_its_processor(text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "_cpuinfo_text", lambda: text)
    monkeypatch.setattr("sys.platform", "linux")

    assert platform._cpu_name() == name
