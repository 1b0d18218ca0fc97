// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Before a `__host__ __device__` template: it may call functions that exist on one side only.
#if defined(__NVCC__) && defined(__CUDACC__)
#define RMM_EXEC_CHECK_DISABLE _Pragma("nv_exec_check_disable")
#else
#define RMM_EXEC_CHECK_DISABLE
#endif
