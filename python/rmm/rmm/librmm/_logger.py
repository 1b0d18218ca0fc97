# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from rmm.pylibrmm._log_levels import level_enum

__all__ = ["level_enum"]
