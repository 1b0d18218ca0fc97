# SPDX-License-Identifier: Apache-2.0
"""rmm.pylibrmm.logger, under the name that it had up to 24.10."""

from __future__ import annotations

from rmm.pylibrmm.logger import *  # noqa: F403
