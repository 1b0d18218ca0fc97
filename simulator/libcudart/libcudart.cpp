// SPDX-License-Identifier: Apache-2.0
//
// libcudart.so.N of the simulator, for programs whose libraries ask for the CUDA runtime by that name. Part of the
// Python package: the symbols of its libcudart_sim.so are versioned, so the loader does not bind other libraries to
// them. Each symbol here jumps to that of the simulator.

#include "src/jump.hpp"

#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>

#define CUDART_SYMBOL(symbol) CUDASIM_DEFINE_JUMP(cudasim_slot_##symbol, #symbol)
#include "symbols/cudart_12_only.inc"
#include "symbols/cudart_13_0.inc"
#undef CUDART_SYMBOL

namespace {

struct symbol {
  void** slot;
  char const* name;
};

constexpr symbol symbols[]{
#define CUDART_SYMBOL(symbol) {&cudasim_slot_##symbol, #symbol},
#include "symbols/cudart_12_only.inc"
#include "symbols/cudart_13_0.inc"
#undef CUDART_SYMBOL
};

[[gnu::constructor]] void find_functions()
{
  void* const simulator =
    ::dlopen("libcudart_sim.so", RTLD_NOLOAD | RTLD_NOW);  // this library needs it, so it is loaded
  for (auto const& entry : symbols) {
    *entry.slot = simulator != nullptr ? ::dlsym(simulator, entry.name) : nullptr;
    if (*entry.slot == nullptr) {
      std::fprintf(
        stderr, "cudasim: libcudart_sim.so has no %s; take it and this libcudart.so from one build\n", entry.name);
      std::abort();
    }
  }
}

}  // namespace
