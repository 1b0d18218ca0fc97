// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace compare {

/// Returns how many calls of cudaDeviceSynchronize, cudaStreamSynchronize and cudaEventSynchronize this process has made, from
/// any library. Waits inside other calls of the driver, such as cudaFree, do not count.
[[nodiscard]] std::uint64_t synchronizations() noexcept;

/// Returns whether they can be counted: the program and the plug-ins must share one CUDA runtime.
[[nodiscard]] bool counts_synchronizations() noexcept;

}  // namespace compare
