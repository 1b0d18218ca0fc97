# SPDX-License-Identifier: Apache-2.0
"""An empty module next to `_torch_allocator.so`: programs look for that file beside this module."""
