"""The optimisers of convolutional networks; what a step needs of the schedule lies in tensors, so that a step can be captured."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gelu_study.runs import RunConfig
from gelu_study.training import schedules

BETA_2 = 0.999
EPSILON = 1e-8
SHIFT_FACTOR = 64
"""With lookahead the shifts of normalisations learn so many times faster (Jordan 2024, arXiv:2404.00498)."""
LOOKAHEAD_EVERY = 5
LOOKAHEAD_DECAY = 0.95


class Adam:
    """Adam as the paper's code for CIFAR-10 writes it in Theano: epsilon 1e-8 under the root of the corrected second moment.

    PyTorch adds epsilon beside the root, where 1e-8 is nothing; under it, it keeps the root above 1e-4. Beta 1 follows the schedule
    and corrects with its present value (Kingma & Ba 2014, arXiv:1412.6980).
    """

    def __init__(self, network: nn.Module, config: RunConfig) -> None:
        self._config = config
        self.parameters: list[Tensor] = [value for value in network.parameters() if value.requires_grad]
        self._first = [torch.zeros_like(value) for value in self.parameters]
        self._second = [torch.zeros_like(value) for value in self.parameters]
        device = self.parameters[0].device
        # beta 1, 1 - beta 1, the rate over beta 1's correction, beta 2's correction
        self._scalars = [torch.zeros((), device=device) for _ in range(4)]

    def prepare(self, step: int) -> None:
        """Set what a step needs of its number, counted from 0."""
        config = self._config
        steps, per_epoch = config.epochs * config.steps_per_epoch, config.steps_per_epoch
        beta = schedules.first_moment_decay(config.schedule, step, steps, per_epoch)
        rate = config.learning_rate * schedules.learning_rate_factor(config.schedule, step, steps, per_epoch)
        values = (beta, 1 - beta, rate / (1 - beta ** (step + 1)), 1 - BETA_2 ** (step + 1))
        for scalar, value in zip(self._scalars, values, strict=True):
            scalar.fill_(value)

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters from their gradients."""
        gradients = [value.grad for value in self.parameters if value.grad is not None]
        beta, rest, rate, correction = self._scalars
        torch._foreach_mul_(self._first, beta)
        torch._foreach_add_(self._first, torch._foreach_mul(gradients, rest))
        torch._foreach_mul_(self._second, BETA_2)
        torch._foreach_addcmul_(self._second, gradients, gradients, 1 - BETA_2)
        roots = torch._foreach_div(self._second, correction)
        torch._foreach_add_(roots, EPSILON)
        torch._foreach_sqrt_(roots)
        steps = torch._foreach_div(self._first, roots)
        torch._foreach_sub_(self.parameters, list(torch._foreach_mul(steps, rate)))

    def finish_step(self, step: int) -> None:
        """Nothing follows a step."""

    def finish(self) -> None:
        """Nothing follows training."""

    def state(self) -> dict[str, Tensor]:
        """What the optimiser keeps from step to step, by name."""
        kept = {"first moment": self._first, "second moment": self._second}
        return {f"{name} {n}": value for name, values in kept.items() for n, value in enumerate(values)}


class Nesterov:
    """PyTorch's SGD with Nesterov momentum; weight decay for all but biases and shifts, as the library of the paper's code for
    CIFAR-100 has it: weights and the scales of normalisations.

    With `lookahead` (Zhang et al. 2019, arXiv:1907.08610, as Jordan 2024 has it) the shifts of normalisations learn `SHIFT_FACTOR`
    times faster, everything decays alike, and every fifth step the network is set to an average of itself that moves the less the
    later; the average is the result.
    """

    def __init__(self, network: nn.Module, config: RunConfig, lookahead: bool) -> None:
        self._config = config
        apart = _shifts_of_normalisations(network) if lookahead else _biases(network)
        rest = [value for value in network.parameters() if value.requires_grad and all(value is not one for one in apart)]
        own = {"factor": SHIFT_FACTOR, "weight_decay": config.weight_decay / SHIFT_FACTOR} if lookahead else {"factor": 1}
        groups: list[dict[str, Any]] = [
            {"params": rest, "factor": 1, "weight_decay": config.weight_decay},
            {"params": apart, "weight_decay": 0.0, **own},
        ]
        self.parameters = [*rest, *apart]
        self._captured = self.parameters[0].device.type == "cuda"
        for group in groups:
            group["lr"] = torch.zeros((), device=self.parameters[0].device) if self._captured else 0.0
        self._sgd = torch.optim.SGD(groups, momentum=config.momentum, nesterov=config.momentum > 0, fused=True)
        for value in self.parameters:  # a first step from zeros is what PyTorch does without a buffer
            self._sgd.state[value]["momentum_buffer"] = torch.zeros_like(value)
        moving = [*self.parameters, *(value for value in network.buffers() if value.is_floating_point())]
        self._moving = moving if lookahead else []
        self._average = [value.detach().clone() for value in self._moving]

    def prepare(self, step: int) -> None:
        """Set the learning rates of a step, counted from 0."""
        config = self._config
        steps = config.epochs * config.steps_per_epoch
        rate = config.learning_rate * schedules.learning_rate_factor(config.schedule, step, steps, config.steps_per_epoch)
        for group in self._sgd.param_groups:
            if self._captured:
                group["lr"].fill_(rate * group["factor"])
            else:
                group["lr"] = rate * group["factor"]

    def step(self) -> None:
        """Update the parameters from their gradients."""
        self._sgd.step()

    @torch.no_grad()
    def finish_step(self, step: int) -> None:
        """Look ahead, after the step with that number."""
        if not self._moving or (step + 1) % LOOKAHEAD_EVERY:
            return
        share = (step + 1) / (self._config.epochs * self._config.steps_per_epoch)
        kept = LOOKAHEAD_DECAY**LOOKAHEAD_EVERY * share**3
        torch._foreach_lerp_(self._average, self._moving, 1 - kept)
        torch._foreach_copy_(self._moving, self._average)

    @torch.no_grad()
    def finish(self) -> None:
        """Leave the average in the network, where there is one."""
        if self._moving:
            torch._foreach_copy_(self._moving, self._average)

    def state(self) -> dict[str, Tensor]:
        """What the optimiser keeps from step to step, by name."""
        momentum = {f"momentum {n}": self._sgd.state[value]["momentum_buffer"] for n, value in enumerate(self.parameters)}
        return momentum | {f"average {n}": value for n, value in enumerate(self._average)}


def _biases(network: nn.Module) -> list[Tensor]:
    """Biases of layers and shifts of normalisations that are trained."""
    return [value for name, value in network.named_parameters() if name.endswith("bias") and value.requires_grad]


def _shifts_of_normalisations(network: nn.Module) -> list[Tensor]:
    return [layer.bias for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]


def optimiser(network: nn.Module, config: RunConfig) -> Adam | Nesterov:
    """The optimiser of that name over a network's trainable parameters: `adam-theano`, `nesterov` or `nesterov-lookahead`."""
    if config.optimiser == "adam-theano":
        return Adam(network, config)
    return Nesterov(network, config, lookahead=config.optimiser == "nesterov-lookahead")
