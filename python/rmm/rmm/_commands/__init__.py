# SPDX-License-Identifier: Apache-2.0
"""The commands of `python -m rmm`, a module each: add_arguments() and run()."""
