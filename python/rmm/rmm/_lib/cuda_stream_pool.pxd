# SPDX-License-Identifier: Apache-2.0

from rmm.librmm.cuda_stream_pool cimport cuda_stream_pool
