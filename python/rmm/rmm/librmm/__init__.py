# SPDX-License-Identifier: Apache-2.0
"""Declarations of the C++ library, for Cython. rmm.pylibrmm has the Python classes."""
