"""Random streams against SplitMix64 in plain integers."""

from __future__ import annotations

import pytest
import torch

from gelu_study import random_streams
from gelu_study.random_streams import MaskStream, minibatch_order, stream_seed

MASK = 2**64 - 1


def splitmix64(state: int):
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def test_words_are_splitmix64(monkeypatch):
    # the published test vector of the reference implementation for seed 1234567
    vector = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    monkeypatch.setattr(random_streams, "stream_seed", lambda seed, purpose, index=0: seed)
    stream = MaskStream([1234567, 2**64 - 5], 0.5, 5 * 64, torch.device("cpu"))
    stream.draw(0)
    assert [word & MASK for word in stream._word[0].tolist()] == vector
    generator = splitmix64(2**64 - 5)
    first, second = ([next(generator) for _ in range(5)] for _ in range(2))
    assert [word & MASK for word in stream._word[1].tolist()] == first
    stream.draw(1)  # goes on where step 0 ended
    assert [word & MASK for word in stream._word[1].tolist()] == second


@pytest.mark.parametrize("keep", [0.5, 0.25, 0.75, 0.9375, 0.8, 0.1])
def test_mask_values_and_rate(keep):
    size, runs = 40_000, 3
    stream = MaskStream(list(range(runs)), keep, size, torch.device("cpu"))
    stream.draw(7)
    mask = torch.empty(runs, size)
    stream.mask(0, size, out=mask)
    assert set(mask.unique().tolist()) == {0.0, torch.tensor(1 / keep).item()}
    kept = (mask > 0).float().mean(1)
    assert (kept - keep).abs().max() < 5 * (keep * (1 - keep) / size) ** 0.5
    agreement = ((mask[0] > 0) == (mask[1] > 0)).float().mean()
    assert abs(agreement - (keep**2 + (1 - keep) ** 2)) < 0.02


def test_mask_bits_are_those_of_the_words():
    stream = MaskStream([3], 0.5, 128, torch.device("cpu"))
    stream.draw(0)
    mask = torch.empty(1, 64)
    stream.mask(64, 128, out=mask)
    word = stream._word[0, 1].item() & MASK
    assert [int(v == 0) for v in mask[0].tolist()] == [word >> bit & 1 for bit in range(64)]


def test_a_stream_does_not_depend_on_its_neighbours():
    alone, together = (MaskStream(seeds, 0.5, 512, torch.device("cpu")) for seeds in ([5], [1, 5, 9]))
    one, three = torch.empty(1, 512), torch.empty(3, 512)
    for stream, out in ((alone, one), (together, three)):
        stream.draw(11)
        stream.mask(0, 512, out=out)
    assert torch.equal(one[0], three[1])
    assert not torch.equal(three[0], three[1])


def test_orders_are_permutations_that_differ():
    orders = [minibatch_order(seed, epoch, 1000) for seed in (0, 1) for epoch in (0, 1)]
    assert all(torch.equal(order.sort().values, torch.arange(1000)) for order in orders)
    assert len({tuple(order.tolist()) for order in orders}) == 4
    assert torch.equal(minibatch_order(0, 0, 1000), orders[0])


def test_purposes_have_their_own_seeds():
    seeds = {
        stream_seed(seed, purpose, index) for seed in range(3) for purpose in ("weights", "order", "masks") for index in range(3)
    }
    assert len(seeds) == 27


def test_no_mask_at_keep_probability_one():
    with pytest.raises(ValueError, match="keep probability"):
        MaskStream([0], 1.0, 64, torch.device("cpu"))
