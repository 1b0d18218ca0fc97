// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <dlfcn.h>

#include <optional>

namespace RMM_NAMESPACE {
namespace detail {

/// Finds functions of the CUDA runtime by name. For functions that the installed toolkit may lack.
struct dynamic_load_runtime {
  /// Returns a handle for dlsym: of the shared object with the runtime that this file is linked with, or else of the program.
  [[nodiscard]] static void* get_cuda_runtime_handle()
  {
    static void* const handle = [] {
      Dl_info runtime{};
      if (dladdr(reinterpret_cast<void*>(&::cudaRuntimeGetVersion), &runtime) != 0) {
        if (void* const object = dlopen(runtime.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) { return object; }
      }
      return dlopen(nullptr, RTLD_LAZY);
    }();
    return handle;
  }

  /// The type of a runtime function with these parameters.
  template <class... Args>
  using function_sig = cudaError_t (*)(Args...);

  /// Returns the function `name`; nothing if the runtime lacks it, or hides it, as the static runtime does.
  template <class Signature>
  [[nodiscard]] static std::optional<Signature> function(char const* name)
  {
    void* const symbol = dlsym(get_cuda_runtime_handle(), name);
    if (symbol == nullptr) { return std::nullopt; }
    return reinterpret_cast<Signature>(symbol);
  }
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
