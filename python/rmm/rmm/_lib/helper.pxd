# SPDX-License-Identifier: Apache-2.0

from rmm.pylibrmm.helper cimport parse_bytes
