# SPDX-License-Identifier: Apache-2.0
"""What Cython has no words for: the docstring of an attribute of an extension class."""

from __future__ import annotations


def describe_attribute(owner: type, name: str, text: str) -> None:
    """Gives an attribute that is declared `readonly` in a .pxd file a docstring."""
    attribute = vars(owner)[name]
    setattr(owner, name, property(attribute.__get__, doc=text))
