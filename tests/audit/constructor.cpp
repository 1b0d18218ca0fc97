// SPDX-License-Identifier: Apache-2.0
//
// A library whose constructor waits for a thread that allocates. The dynamic linker's lock is held meanwhile.

#include "caller.hpp"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <thread>

extern "C" caller const first;

namespace {

[[gnu::constructor]] void allocate_in_a_thread()
{
  if (std::getenv("AUDIT_ALLOCATE") == nullptr) { return; }
  std::thread{[] {
    ::cudaSetDevice(0);
    memory got{};
    if (first.allocate_again(2000, got) != CUDA_SUCCESS) { std::abort(); }
  }}.join();
}

}  // namespace
