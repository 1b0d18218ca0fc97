// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace compare {

/// Calls that made a thread of this process wait for the device, so far: cudaDeviceSynchronize, cudaStreamSynchronize and
/// cudaEventSynchronize, whoever made them. Those that the driver makes inside other calls (cudaFree) do not count.
[[nodiscard]] std::uint64_t synchronizations() noexcept;

/// Whether they can be counted: the program and the plug-ins share one CUDA runtime.
[[nodiscard]] bool counts_synchronizations() noexcept;

}  // namespace compare
