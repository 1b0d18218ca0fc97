// SPDX-License-Identifier: Apache-2.0
//
// Kernels. A program with kernels links and starts, and each launch fails because no device can run it. This file has
// the functions that nvcc's code calls, and the launches.

#include "reports.hpp"

#include <cxxabi.h>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

namespace cudasim {
namespace {

/// Names of the program's kernels, by the address of their host function.
struct kernel_names {
  std::mutex mutex;
  std::unordered_map<void const*, std::string> all;
};

[[nodiscard]] kernel_names& kernels()
{
  static auto& names = *new kernel_names;  // leaked on purpose: code unregisters its kernels late
  return names;
}

[[nodiscard]] std::string kernel_name(void const* host_function)
{
  auto& names = kernels();
  std::lock_guard<std::mutex> const lock{names.mutex};
  auto const found = names.all.find(host_function);
  if (found == names.all.end()) { return "an unknown kernel"; }
  int status             = 0;
  char* const readable   = abi::__cxa_demangle(found->second.c_str(), nullptr, nullptr, &status);
  std::string const name = readable != nullptr ? readable : found->second;
  std::free(readable);
  return name;
}

[[nodiscard]] cudaError_t refuse_launch(entry_point& entry, void const* site, void const* host_function)
{
  return enter(entry, site, [&](call& c) {
    return report_unsimulated(
      c, " is not simulated: nothing runs " + kernel_name(host_function) + "; cudasim::launch stands for a kernel");
  });
}

/// Passed from the <<<>>> operator to the launch.
struct launch_configuration {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<launch_configuration> pushed_configurations;

}  // namespace
}  // namespace cudasim

using namespace cudasim;

// --- Launches

#define CUDASIM_REFUSE_LAUNCH(function, host_function) \
  static entry_point entry{#function};                 \
  return refuse_launch(entry, __builtin_return_address(0), host_function)

extern "C" {

cudaError_t cudaLaunchKernel(void const* host_function, dim3, dim3, void**, std::size_t, cudaStream_t)
{
  CUDASIM_REFUSE_LAUNCH(cudaLaunchKernel, host_function);
}
CUDASIM_EXPORT cudaError_t
cudaLaunchKernel_ptsz(void const* host_function, dim3, dim3, void**, std::size_t, cudaStream_t)
{
  CUDASIM_REFUSE_LAUNCH(cudaLaunchKernel, host_function);
}

cudaError_t cudaLaunchCooperativeKernel(void const* host_function, dim3, dim3, void**, std::size_t, cudaStream_t)
{
  CUDASIM_REFUSE_LAUNCH(cudaLaunchCooperativeKernel, host_function);
}
CUDASIM_EXPORT cudaError_t
cudaLaunchCooperativeKernel_ptsz(void const* host_function, dim3, dim3, void**, std::size_t, cudaStream_t)
{
  CUDASIM_REFUSE_LAUNCH(cudaLaunchCooperativeKernel, host_function);
}

cudaError_t cudaLaunchKernelExC(cudaLaunchConfig_t const*, void const* host_function, void**)
{
  CUDASIM_REFUSE_LAUNCH(cudaLaunchKernelExC, host_function);
}
CUDASIM_EXPORT cudaError_t cudaLaunchKernelExC_ptsz(cudaLaunchConfig_t const*, void const* host_function, void**)
{
  CUDASIM_REFUSE_LAUNCH(cudaLaunchKernelExC, host_function);
}

CUDASIM_EXPORT cudaError_t __cudaLaunchKernel(void* kernel, dim3, dim3, void**, std::size_t, cudaStream_t)
{
  CUDASIM_REFUSE_LAUNCH(__cudaLaunchKernel, kernel);
}
CUDASIM_EXPORT cudaError_t __cudaLaunchKernel_ptsz(void* kernel, dim3, dim3, void**, std::size_t, cudaStream_t)
{
  CUDASIM_REFUSE_LAUNCH(__cudaLaunchKernel, kernel);
}

// --- Called by nvcc's code before main() and around a launch. Undocumented; not counted; never fails.

CUDASIM_EXPORT void** __cudaRegisterFatBinary(void*)
{
  static void* handle = nullptr;
  return &handle;
}
CUDASIM_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
CUDASIM_EXPORT void __cudaUnregisterFatBinary(void**) {}
CUDASIM_EXPORT char __cudaInitModule(void**) { return 1; }

CUDASIM_EXPORT void __cudaRegisterFunction(
  void**, char const* host_function, char*, char const* name, int, uint3*, uint3*, dim3*, dim3*, int*)
{
  auto& names = kernels();
  std::lock_guard<std::mutex> const lock{names.mutex};
  names.all[host_function] = name;
}

CUDASIM_EXPORT void __cudaRegisterVar(void**, char*, char*, char const*, int, std::size_t, int, int) {}
CUDASIM_EXPORT void __cudaRegisterHostVar(void**, char const*, char*, std::size_t) {}
CUDASIM_EXPORT void __cudaRegisterUnifiedTable(void**, void*) {}
CUDASIM_EXPORT void __cudaRegisterManagedVar(void**, void**, char*, char const* name, int, std::size_t, int, int)
{
  std::fprintf(stderr, "cudasim: __managed__ variables are not simulated: %s has no memory\n", name);
}

CUDASIM_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid,
                                                    dim3 block,
                                                    std::size_t shared_bytes,
                                                    cudaStream_t stream)
{
  pushed_configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

CUDASIM_EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void* stream)
{
  if (pushed_configurations.empty()) { return cudaErrorMissingConfiguration; }
  auto const last = pushed_configurations.back();
  pushed_configurations.pop_back();
  *grid                               = last.grid;
  *block                              = last.block;
  *shared_bytes                       = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}

CUDASIM_EXPORT cudaError_t __cudaGetKernel(void** kernel, void const* host_function)
{
  *kernel = const_cast<void*>(host_function);  // the only use of it is as an argument of __cudaLaunchKernel
  return cudaSuccess;
}

// --- Depends on its arguments alone, and is the only function here that returns no error

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind)
{
  return {x, y, z, w, kind};
}

}  // extern "C"
