# SPDX-License-Identifier: Apache-2.0

cpdef object parse_bytes(object s)
