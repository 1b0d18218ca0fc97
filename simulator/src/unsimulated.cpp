// SPDX-License-Identifier: Apache-2.0
//
// What the CUDA runtime has and the simulator does not: every symbol of libcudart that no other file defines is defined here
// and answers cudaErrorNotSupported, so that no call is ever a silent success, or reaches a real runtime.

#include "reports.hpp"

#include <string>

namespace cudasim {
namespace {

[[nodiscard]] cudaError_t refuse(entry_point& entry, void const* site)
{
  return enter(entry, site, [](call& c) { return report_unsimulated(c, " is not simulated"); });
}

}  // namespace
}  // namespace cudasim

#if CUDART_VERSION >= 13000
// Exactly the symbols that are missing: the linker refuses one that another file defines as well, and symbols_tests.cpp
// finds one that nobody defines.
#define CUDASIM_OVERRIDABLE
#else
// Which symbols stand for the functions of the headers depends on the toolkit (cudaX or cudaX_v2). So all of them are here,
// and those that another file defines are overridden by it.
#define CUDASIM_OVERRIDABLE __attribute__((weak))
#endif

// Another C++ name for each symbol: the headers declare most of them with their real signatures. The definition looks at
// no argument, which the C calling conventions of Linux allow whatever the caller passes.
#define CUDART_SYMBOL(symbol)                                                                                \
  extern "C" CUDASIM_EXPORT CUDASIM_OVERRIDABLE cudaError_t cudasim_unsimulated_##symbol() __asm__(#symbol); \
  cudaError_t cudasim_unsimulated_##symbol()                                                                 \
  {                                                                                                          \
    static cudasim::entry_point entry{#symbol};                                                              \
    return cudasim::refuse(entry, __builtin_return_address(0));                                              \
  }

#if CUDART_VERSION >= 13000
#include "../symbols/unsimulated.inc"
#else
#include "../symbols/cudart_12_only.inc"
#include "../symbols/cudart_13_0.inc"
#endif
