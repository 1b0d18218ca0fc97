// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Stands before a `__host__ __device__` template, and allows it to call functions that exist on the host only or device only.
#if defined(__NVCC__) && defined(__CUDACC__)
#define RMM_EXEC_CHECK_DISABLE _Pragma("nv_exec_check_disable")
#else
#define RMM_EXEC_CHECK_DISABLE
#endif
