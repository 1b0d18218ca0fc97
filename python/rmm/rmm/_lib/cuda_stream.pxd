# SPDX-License-Identifier: Apache-2.0

from rmm.librmm.cuda_stream cimport cuda_stream
from rmm.pylibrmm.cuda_stream cimport CudaStream
