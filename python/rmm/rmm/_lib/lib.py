# SPDX-License-Identifier: Apache-2.0
"""Where `_torch_allocator.so` is, for who looks next to this module."""
