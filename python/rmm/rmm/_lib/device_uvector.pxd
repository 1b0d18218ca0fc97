# SPDX-License-Identifier: Apache-2.0

from rmm.librmm.device_uvector cimport device_uvector
