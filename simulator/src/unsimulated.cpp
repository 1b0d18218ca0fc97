// SPDX-License-Identifier: Apache-2.0
//
// Every symbol of libcudart that no other file defines is defined here and answers cudaErrorNotSupported, so that no
// unsimulated call silently succeeds or reaches a real runtime.

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
// Exactly the missing symbols: the linker refuses duplicates, and symbols_tests.cpp finds symbols without definition.
#define CUDASIM_OVERRIDABLE
#else
// Which symbols stand for functions of the headers depends on the toolkit (cudaX or cudaX_v2). So all symbols are
// defined here, weakly: definitions in other files override them.
#define CUDASIM_OVERRIDABLE __attribute__((weak))
#endif

// The symbol gets another C++ name, because the headers declare most functions with their real signatures. The
// definition reads no argument; the C calling conventions of Linux allow that for any caller.
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
