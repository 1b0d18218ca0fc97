// SPDX-License-Identifier: Apache-2.0
//
// Calls of CUDA at the ends of functions, which compilers make jumps. callers_tests.cpp runs this program.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>
#include <future>
#include <string_view>

namespace {

void* const no_memory = reinterpret_cast<void*>(std::uintptr_t{0x1234});

void clean_up() { cudaFree(no_memory); }

void load_weights() { cudaFree(no_memory); }

}  // namespace

int main(int count, char** arguments)
{
  if (count == 2 && std::string_view{arguments[1]} == "at exit") { return std::atexit(clean_up); }
  std::async(std::launch::async, load_weights).get();
  return 0;
}
