# SPDX-License-Identifier: Apache-2.0
"""rmm.pylibrmm.memory_resource, under the name that it had up to 24.10."""

from __future__ import annotations

from rmm.pylibrmm.memory_resource import *  # noqa: F403
