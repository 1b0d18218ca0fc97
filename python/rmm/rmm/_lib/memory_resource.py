# SPDX-License-Identifier: Apache-2.0
"""rmm.pylibrmm.memory_resource, under the name that it had up to 24.10."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmm.pylibrmm.memory_resource import *  # noqa: F403

if not TYPE_CHECKING:  # mypy does not know module functions of this name
    from rmm.pylibrmm.memory_resource import __getattr__ as __getattr__
