"""Whether figures that are sampled during a long run grow.

Main function: `grown` (which ones do). Thread: pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_MIN_SAMPLES = 4


def grown(samples: Sequence[object], tolerance: Mapping[str, tuple[float, float]]) -> list[str]:
    """What is more at the end than it was after the first third, which is for warming up.

    Args:
        samples: In the order of time, with the figures as attributes.
        tolerance: For each figure what it may differ by before that counts: share, then amount.

    Returns:
        A line for each figure that grows.

    >>> from types import SimpleNamespace as Sample
    >>> grown([Sample(mb=mb) for mb in (1, 9, 9, 8, 9, 9, 9)], {"mb": (0.1, 1.0)})
    []
    >>> grown([Sample(mb=mb) for mb in (1, 9, 9, 9, 12, 13, 14)], {"mb": (0.1, 1.0)})
    ['mb: from at most 9.0 to at least 12.0']
    """
    settled = samples[len(samples) // 3 :]
    if len(settled) < _MIN_SAMPLES:
        return ["too few samples to tell: a longer run is needed"]
    half = len(settled) // 2
    found: list[str] = []
    for name, (share, amount) in tolerance.items():
        before = max(float(getattr(sample, name)) for sample in settled[:half])
        after = min(float(getattr(sample, name)) for sample in settled[half:])
        if after > before * (1 + share) + amount:
            found.append(f"{name}: from at most {before:.1f} to at least {after:.1f}")
    return found
