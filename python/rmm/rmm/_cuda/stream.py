# SPDX-License-Identifier: Apache-2.0
"""rmm.pylibrmm.stream, under the name that it had up to 24.12."""

from __future__ import annotations

from rmm.pylibrmm.stream import DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream

__all__ = ["DEFAULT_STREAM", "LEGACY_DEFAULT_STREAM", "PER_THREAD_DEFAULT_STREAM", "Stream"]
