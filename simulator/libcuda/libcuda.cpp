// SPDX-License-Identifier: Apache-2.0
//
// libcuda.so.1 of the simulator, for programs that open the driver by name. cuGetProcAddress and symbols (symbols.cpp)
// lead to the functions of libcudart_sim.so, so that both libraries of a process share one machine.

#include "src/driver.hpp"

#include <atomic>
#include <cstdio>
#include <cstring>

#undef cuGetProcAddress

namespace {

/// The function of this file that cuGetProcAddress knows by `name`; null if there is none.
[[nodiscard]] void* own_function(char const* name, int version);

CUresult find(char const* name, void** out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status)
{
  constexpr cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (name == nullptr || out == nullptr || (flags & ~known) != 0) { return CUDA_ERROR_INVALID_VALUE; }
  bool exists           = false;
  bool const own_stream = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  *out                  = own_function(name, version);
  if (*out == nullptr) { *out = cudasim::find_driver_function(name, version, own_stream, exists); }
  if (status != nullptr) {
    *status = *out != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : exists        ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                              : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

#define CUDASIM_DRIVER_SYMBOL extern "C" CUDASIM_EXPORT

/// Tells libcudart_sim.so that this is the driver of the process (load_check.cpp).
CUDASIM_DRIVER_SYMBOL int const cudasim_is_driver;
int const cudasim_is_driver = 1;

CUDASIM_DRIVER_SYMBOL CUresult
cuGetProcAddress_v2(char const* name, void** out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult* status)
{
  return find(name, out, version, flags, status);
}

CUDASIM_DRIVER_SYMBOL CUresult cuGetProcAddress(char const* name, void** out, int version, cuuint64_t flags)
{
  return find(name, out, version, flags, nullptr);
}

/// NVIDIA's runtime asks for these undocumented tables to test whether the driver is NVIDIA's. So a program that
/// contains NVIDIA's runtime stops here, with a line that says what to do.
CUDASIM_DRIVER_SYMBOL CUresult cuGetExportTable(void const** out, CUuuid const* /*which*/)
{
  static std::atomic<bool> told{false};
  if (out == nullptr) { return CUDA_ERROR_INVALID_VALUE; }
  *out = nullptr;
  if (!told.exchange(true)) {
    std::fputs(
      "cudasim: NVIDIA's CUDA runtime is in this program, and accepts NVIDIA's driver alone; link the program with "
      "-lcudart_sim before "
      "-lcudart_static, or with the shared runtime\n",
      stderr);
  }
  return CUDA_ERROR_NOT_FOUND;
}

namespace {

template <class Signature>
[[nodiscard]] void* address_of_function(Signature* function)
{
  return reinterpret_cast<void*>(function);
}

void* own_function(char const* name, int version)
{
  constexpr int with_status = 12000;  // the version that gave cuGetProcAddress its last argument
  if (std::strcmp(name, "cuGetProcAddress") == 0) {
    return version >= with_status ? address_of_function(&cuGetProcAddress_v2) : address_of_function(&cuGetProcAddress);
  }
  return std::strcmp(name, "cuGetExportTable") == 0 ? address_of_function(&cuGetExportTable) : nullptr;
}

}  // namespace
