"""The archives of a data set, fetched with torchvision from its mirrors and checked against its MD5 sums."""

from __future__ import annotations

import errno
import http.client
import socket
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gelu_study.datasets.readers import cifar
from gelu_study.errors import DataError

NAMES = ("mnist", "cifar10", "cifar100")
"""The data sets that torchvision has addresses of; others are imported."""

SILENCE = 60.0
"""Seconds without a byte after which a server is given up; torchvision itself would wait for ever."""


def download(name: str, folder: Path) -> None:
    """Fetch the archives of one of `NAMES` into `folder`, as they are.

    Raises `DataError` for any other name and when no mirror hands one over whole, and `OSError` when the disk is full.
    """
    if name not in NAMES:
        raise DataError(f"{name} has no address to be downloaded from; import it with `gelu-study data {name} --from FOLDER`")
    from torchvision.datasets.utils import download_url

    for file, md5, addresses in _archives(name):
        reasons = []
        for address in addresses:
            try:
                with _patience():
                    download_url(address, folder, file, md5)
                break
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                reasons.append(f"{address}: {_reason(error)}")
        else:
            raise DataError(
                f"{name} could not be downloaded ({'; '.join(reasons)}); check the network and try again, or import it "
                f"from a folder with `gelu-study data {name} --from FOLDER`"
            )


def _archives(name: str) -> list[tuple[str, str, list[str]]]:
    """File name, MD5 and addresses of each."""
    from torchvision.datasets import MNIST

    if name == "mnist":
        return [(file, md5, [mirror + file for mirror in MNIST.mirrors]) for file, md5 in MNIST.resources]
    published = cifar(name)
    return [(published.filename, published.tgz_md5, [published.url])]


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
    elif isinstance(error, urllib.error.URLError):
        return str(error.reason)
    elif type(error) is RuntimeError:  # torchvision's "File not found or corrupted."
        return "what arrived does not have the published MD5: it is truncated or another file"
    return str(error) or type(error).__name__


@contextmanager
def _patience() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
