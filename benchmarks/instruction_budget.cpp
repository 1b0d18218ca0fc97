// SPDX-License-Identifier: Apache-2.0
//
// INSTRUCTION_BUDGET <what> <times>: does one thing so many times, for a tool that counts instructions: the difference of
// two runs, over the difference of their times, is what doing it once costs.

#include <rmm/cuda_stream.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace {

/// Makes the compiler believe that a value is used, and that all memory may have changed.
void use(void const* value) { asm volatile("" : : "g"(value) : "memory"); }

/// A pointer that the compiler knows nothing about.
rmm::mr::device_memory_resource* hidden(rmm::mr::device_memory_resource* resource)
{
  asm volatile("" : "+r"(resource));
  return resource;
}

void run(char const* what, long times)
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{
    &cuda, std::size_t{1} << 30U, std::size_t{1} << 30U};
  rmm::mr::set_current_device_resource(&pool);
  auto* const resource = hidden(&pool);
  {
    rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
    auto const repeat = [&](auto&& body) {
      for (long i = 0; i < times; ++i) { body(); }
    };
    if (std::strcmp(what, "pair") == 0) {
      repeat([&] {
        void* const ptr = resource->allocate(256, stream);
        use(ptr);
        resource->deallocate(ptr, 256, stream);
      });
    } else if (std::strcmp(what, "uvector") == 0) {
      repeat([&] {
        rmm::device_uvector<int> const vector{1000, stream};
        use(vector.data());
      });
    } else if (std::strcmp(what, "getter") == 0) {
      repeat([] { use(rmm::mr::get_current_device_resource()); });
    } else {
      std::fprintf(stderr, "INSTRUCTION_BUDGET: %s is none of pair, uvector, getter\n", what);
      std::exit(2);
    }
  }
  rmm::mr::set_current_device_resource(nullptr);
}

}  // namespace

int main(int argc, char** argv)
{
  if (argc != 3) {
    std::fputs("INSTRUCTION_BUDGET <pair|uvector|getter> <times>\n", stderr);
    return 2;
  }
  try {
    run(argv[1], std::atol(argv[2]));
  } catch (std::exception const& e) {
    std::fprintf(stderr, "INSTRUCTION_BUDGET: %s\n", e.what());
    return 1;
  }
}
