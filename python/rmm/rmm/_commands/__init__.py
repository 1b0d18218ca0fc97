# SPDX-License-Identifier: Apache-2.0
"""The commands of `python -m rmm`. Each module has add_arguments() and run()."""
