"""The networks that runs train: stacks of fully connected ones that train together, convolutional ones that train one by one."""

from gelu_study.networks.convolutional import CONVOLUTIONAL, FastConvNet, ShallowConvNet, WideResNet, convolutional
from gelu_study.networks.stacks import STACKS, AutoencoderStack, PerceptronStack, Stack, runs_of_equal

__all__ = [
    "CONVOLUTIONAL",
    "STACKS",
    "AutoencoderStack",
    "FastConvNet",
    "PerceptronStack",
    "ShallowConvNet",
    "Stack",
    "WideResNet",
    "convolutional",
    "runs_of_equal",
]
