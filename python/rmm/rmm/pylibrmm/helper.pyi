# SPDX-License-Identifier: Apache-2.0

__all__ = ["parse_bytes"]

def parse_bytes(s: int | float | str) -> int: ...
