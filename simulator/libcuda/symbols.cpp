// SPDX-License-Identifier: Apache-2.0
//
// The symbols of libcuda.so.1, for programs that use dlsym or are linked to the driver. Each jumps, with any arguments,
// to the function that cuGetProcAddress finds. Symbols that are not simulated answer CUDA_ERROR_NOT_SUPPORTED.

#include "src/driver.hpp"
#include "src/jump.hpp"

namespace {

/// A symbol of a simulated function.
struct symbol {
  void** slot;  ///< what the symbol jumps to
  char const* name;
  int version;
  bool own_stream;
};

}  // namespace

#define DRIVER_SYMBOL(symbol, name, version) CUDASIM_DEFINE_JUMP(cudasim_slot_##symbol, #symbol)
#define DRIVER_SYMBOL_WITH_TWIN(symbol, suffix, name, version) \
  CUDASIM_DEFINE_JUMP(cudasim_slot_##symbol, #symbol)          \
  CUDASIM_DEFINE_JUMP(cudasim_slot_##symbol##suffix, #symbol #suffix)
#include "symbols/driver.inc"
#undef DRIVER_SYMBOL
#undef DRIVER_SYMBOL_WITH_TWIN

// Reads no argument; the C calling conventions of Linux allow that for any caller.
#define DRIVER_SYMBOL(symbol)                                                         \
  extern "C" CUDASIM_EXPORT CUresult cudasim_unsimulated_##symbol() __asm__(#symbol); \
  CUresult cudasim_unsimulated_##symbol()                                             \
  {                                                                                   \
    static cudasim::entry_point entry{#symbol};                                       \
    return cudasim::refuse_driver_call(entry, __builtin_return_address(0));           \
  }
#include "symbols/driver_unsimulated.inc"
#undef DRIVER_SYMBOL

namespace {

/// Stands for a function that the headers at compile time were too old for.
CUresult refuse() { return CUDA_ERROR_NOT_SUPPORTED; }

[[gnu::constructor]] void find_functions()
{
#define DRIVER_SYMBOL(symbol, name, version) {&cudasim_slot_##symbol, #name, version, false},
#define DRIVER_SYMBOL_WITH_TWIN(symbol, suffix, name, version) \
  {&cudasim_slot_##symbol, #name, version, false}, {&cudasim_slot_##symbol##suffix, #name, version, true},
  constexpr symbol all[]{
#include "symbols/driver.inc"
  };
  for (auto const& entry : all) {
    bool exists       = false;
    auto* const found = cudasim::find_driver_function(entry.name, entry.version, entry.own_stream, exists);
    *entry.slot       = found != nullptr ? found : reinterpret_cast<void*>(&refuse);
  }
}

}  // namespace
