# SPDX-License-Identifier: Apache-2.0
"""Docstrings for attributes of extension classes, which Cython does not support."""

from __future__ import annotations


def describe_attribute(owner: type, name: str, text: str) -> None:
    """Gives a docstring to an attribute that a .pxd file declares `readonly`."""
    attribute = vars(owner)[name]
    setattr(owner, name, property(attribute.__get__, doc=text))
