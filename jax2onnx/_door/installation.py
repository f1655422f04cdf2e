"""Another package on the index is also imported as ``jax2onnx``: whichever of the two was installed last has
overwritten files of the other. Neither pip nor Python reports this, so this module does."""

from __future__ import annotations

import os
import sys
import warnings

_REMEDY = (
    "Uninstall both, then install the one you want: pip uninstall -y jax2onnx jax2onnx-c; "
    "pip install jax2onnx-c (or jax2onnx)"
)


def other_package(folder: str) -> str | None:
    """The version of the other package that is installed in the folder, or None."""
    try:
        names = os.listdir(folder)
    except OSError:  # a zip archive contains no other package
        return None
    for name in names:
        if name.startswith("jax2onnx-") and name.endswith(".dist-info"):
            return name.removeprefix("jax2onnx-").removesuffix(".dist-info")
    return None


def warn_of_other_package(package_folder: str) -> None:
    version = other_package(os.path.dirname(package_folder))
    if version is not None:
        warnings.warn(
            f"jax2onnx {version}, another package, is installed in the same folder as jax2onnx-c, and the two "
            f"overwrite each other's files. {_REMEDY}",
            stacklevel=3,
        )


def damage() -> str | None:
    """What happened to this installation if the module ``jax2onnx`` is not ours, or None."""
    package = sys.modules["jax2onnx"]
    if "_LOADED_LATER" in vars(package):
        return None
    if getattr(package, "__file__", None) is None:
        return f"this installation is damaged: jax2onnx/__init__.py is missing. {_REMEDY}"
    return f"another package named jax2onnx has overwritten this one (jax2onnx-c). {_REMEDY}"
