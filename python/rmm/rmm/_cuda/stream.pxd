# SPDX-License-Identifier: Apache-2.0

from rmm.pylibrmm.stream cimport Stream
