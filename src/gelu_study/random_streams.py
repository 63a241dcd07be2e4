"""Random numbers that depend on a run's seed alone, never on the stack or the device that it trains in.

Initial weights and minibatch orders come from PyTorch's CPU generator, seeded for each purpose. Dropout needs far more numbers:
those are bits of SplitMix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195), a generator whose n-th word is a hash of n, so
that all runs of a stack are drawn in one vectorised call, each from its own stream, on any device.

Convolutional networks train alone and take dropout and input noise from the generator of their device, seeded by the run's seed: on
another kind of device they see other masks and noise, though the same weights, orders, shifts and mirrors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def stream_seed(seed: int, purpose: str, index: int = 0) -> int:
    """A 64-bit seed for one purpose ("weights", "order", "masks", "gates") of the run with that seed; `index` counts epochs."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}/{index}".encode()).digest()[:8], "little")


def generator(seed: int, purpose: str, index: int = 0) -> torch.Generator:
    """A CPU generator for that purpose."""
    return torch.Generator().manual_seed(stream_seed(seed, purpose, index) >> 1)


def minibatch_order(seed: int, epoch: int, examples: int) -> Tensor:
    """The order in which a run sees its examples in an epoch (counted from 0), [examples] int64."""
    return torch.randperm(examples, generator=generator(seed, "order", epoch))


def _signed(value: int) -> int:
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _xor_shift(x: Tensor, bits: int) -> Tensor:
    # int64 shifts copy the sign bit in; the mask makes the shift logical
    return x.bitwise_xor_((x >> bits).bitwise_and_((1 << (64 - bits)) - 1))


class BitStream:
    """Random bits for a stack: each run's are its own SplitMix64 stream, `size` fields of `bits` bits a step.

    Shapes: `seeds` has a seed a run; `size` is the number of fields that a run needs in a step, rounded up to whole words.
    """

    def __init__(self, seeds: Sequence[int], purpose: str, size: int, bits: int, device: torch.device) -> None:
        self._words = -(-size * bits // 64)
        states = torch.tensor([[_signed(stream_seed(seed, purpose))] for seed in seeds], dtype=torch.int64)
        counters = torch.tensor([_signed((i + 1) * _GAMMA) for i in range(self._words)], dtype=torch.int64)
        self._base = (states + counters).to(device)  # [runs, words]
        self._word = torch.empty_like(self._base)

    def words(self, step: int) -> Tensor:
        """The bits of a step (counted from 0), [runs, words] int64; overwritten by the next call."""
        word = torch.add(self._base, _signed(step * self._words * _GAMMA), out=self._word)
        _xor_shift(word, 30).mul_(_signed(_MIX_1))
        _xor_shift(word, 27).mul_(_signed(_MIX_2))
        return _xor_shift(word, 31)


class MaskStream(BitStream):
    """Dropout masks for a stack.

    A keep probability k / 2^b with b of 1, 2, 4 or 8 (1/2, 3/4, ...) takes b bits an element, looked up a byte at a time in a table
    of ready mask values; any other takes 32 bits, compared with the probability rounded to a multiple of 2^-32.
    """

    def __init__(self, seeds: Sequence[int], keep_probability: float, size: int, device: torch.device) -> None:
        if not 0 < keep_probability < 1:
            raise ValueError(f"keep probability {keep_probability}: a mask needs one in (0, 1)")
        self.bits = next((b for b in (1, 2, 4, 8) if (keep_probability * 2**b).is_integer()), 32)
        super().__init__(seeds, "masks", size, self.bits, device)
        self._scale = 1 / keep_probability
        if self.bits <= 8:
            threshold = int(keep_probability * 2**self.bits)
            fields = torch.arange(256).unsqueeze(1) >> torch.arange(0, 8, self.bits) & 2**self.bits - 1
            self._table = ((fields < threshold).float() * self._scale).to(device)  # [256, elements a byte]
        else:
            self._threshold = round(keep_probability * 2**32) - 2**31  # of a signed 32-bit integer

    def draw(self, step: int) -> None:
        """Draw the bits of a step (counted from 0); `mask` then reads them."""
        word = self.words(step)
        if self.bits <= 8:
            self._index = word.view(torch.uint8).to(torch.int32)  # [runs, bytes]
        else:
            self._index = word.view(torch.int32)

    def mask(self, start: int, stop: int, out: Tensor) -> None:
        """Write elements start to stop of the step, 0 or 1 / keep probability, into `out`: [runs, stop - start], contiguous.

        `start` and `stop` must be multiples of the elements that a byte holds (8 at keep probability 1/2).
        """
        if self.bits > 8:
            torch.lt(self._index[:, start:stop], self._threshold, out=out)
            out.mul_(self._scale)
            return
        per_byte = 8 // self.bits
        index = self._index[:, start // per_byte : stop // per_byte]
        torch.index_select(self._table, 0, index.reshape(-1), out=out.view(-1, per_byte))


class GateStream(BitStream):
    """Gates of the SOI map for a stack: element x passes where a uniform number of 32 bits is below Phi(x)."""

    def __init__(self, seeds: Sequence[int], size: int, device: torch.device) -> None:
        super().__init__(seeds, "gates", size, 32, device)

    def draw(self, step: int) -> None:
        """Draw the numbers of a step (counted from 0); `open` then reads them."""
        self._numbers = self.words(step).view(torch.int32)  # [runs, elements]

    def open(self, probability: Tensor, start: int, out: Tensor) -> None:
        """Write 1 where the gate is open, else 0, into `out`; both [runs, elements], the latter from element `start` of the step.
        `probability` is overwritten."""
        # Comparing 32 bits of chance with a float32 probability near 0 or 1 takes no more than that probability's own rounding
        threshold = probability.mul_(2.0**32).sub_(2.0**31)
        torch.lt(self._numbers[:, start : start + out.shape[1]].float(), threshold, out=out)
