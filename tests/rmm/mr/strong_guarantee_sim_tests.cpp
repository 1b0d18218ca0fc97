// SPDX-License-Identifier: Apache-2.0

// Every allocating operation of a container, on every resource, with each CUDA call and each host allocation failing once. An
// operation that throws changes nothing, leaks nothing, and succeeds when it is repeated.

#include "../../support/every_resource.hpp"
#include "../../support/failing_host_memory.hpp"
#include "../../support/simulated.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

// --- allocations of host memory that fail

namespace {

thread_local std::uint64_t host_allocations_until_failure{0};  // 0 for none
thread_local bool host_allocation_failed{false};

}  // namespace

bool rmm::test::host_allocation_fails(void const* /*caller*/) noexcept
{
  if (host_allocations_until_failure == 0 || is_called_by_the_runtime()) { return false; }
  if (--host_allocations_until_failure != 0) { return false; }
  host_allocation_failed = true;
  return true;
}

namespace {

using rmm::device_async_resource_ref;
using rmm::device_buffer;
using rmm::device_scalar;
using rmm::device_uvector;
using rmm::test::named_resource;

// --- the containers

constexpr std::size_t count    = 1000;
constexpr std::size_t reserved = 1500;

/// One container of each kind, with known content and, where possible, with slack.
struct containers {
  containers(rmm::cuda_stream_view stream, device_async_resource_ref resource)
    : mr{resource},
      numbers(count),
      buffer{numbers.data(), bytes(count), stream, mr},
      vector(count, stream, mr),
      scalar{seven, stream, mr}
  {
    std::iota(numbers.begin(), numbers.end(), 0);
    buffer.reserve(bytes(reserved), stream);
    vector.reserve(reserved, stream);
    upload(buffer.data(), stream);
    upload(vector.data(), stream);
    stream.synchronize();
  }

  static constexpr std::size_t bytes(std::size_t elements) { return elements * sizeof(int); }

  void expect_unchanged(std::string const& when) const
  {
    EXPECT_EQ(buffer.size(), bytes(count)) << when;
    EXPECT_EQ(buffer.capacity(), bytes(reserved)) << when;
    EXPECT_EQ(vector.size(), count) << when;
    EXPECT_EQ(vector.capacity(), reserved) << when;
    EXPECT_TRUE(buffer.memory_resource() == mr && vector.memory_resource() == mr) << when;
    EXPECT_EQ(content(buffer.data()), numbers) << when;
    EXPECT_EQ(content(vector.data()), numbers) << when;
    EXPECT_EQ(scalar.value(buffer.stream()), seven) << when;
  }

  device_async_resource_ref mr;
  std::vector<int> numbers;
  int const seven{7};
  int const eight{8};
  device_buffer buffer;
  device_uvector<int> vector;
  device_scalar<int> scalar;

 private:
  void upload(void* to, rmm::cuda_stream_view stream) const
  {
    EXPECT_EQ(cudaMemcpyAsync(to, numbers.data(), bytes(count), cudaMemcpyDefault, stream.value()), cudaSuccess);
  }

  static std::vector<int> content(void const* from)
  {
    std::vector<int> values(count);
    EXPECT_EQ(cudaMemcpy(values.data(), from, bytes(count), cudaMemcpyDefault), cudaSuccess);
    return values;
  }
};

struct named_operation {
  char const* name;
  void (*run)(containers&, rmm::cuda_stream_view);
};

std::vector<named_operation> const operations{
  {"buffer of a size",
   [](containers& c, rmm::cuda_stream_view s) {
     device_buffer const made{5000, s, c.mr};
   }},
  {"buffer with an alignment",
   [](containers& c, rmm::cuda_stream_view s) {
     device_buffer const made{5000, 1024, s, c.mr};
   }},
  {"copy of host memory",
   [](containers& c, rmm::cuda_stream_view s) {
     device_buffer const made{c.numbers.data(), 4000, s, c.mr};
   }},
  {"copy of a buffer",
   [](containers& c, rmm::cuda_stream_view s) {
     device_buffer const made{c.buffer, s, c.mr};
   }},
  {"reserving a buffer", [](containers& c, rmm::cuda_stream_view s) { c.buffer.reserve(12000, s); }},
  {"resizing a buffer", [](containers& c, rmm::cuda_stream_view s) { c.buffer.resize(12000, s); }},
  {"shrinking a buffer", [](containers& c, rmm::cuda_stream_view s) { c.buffer.shrink_to_fit(s); }},
  {"vector", [](containers& c, rmm::cuda_stream_view s) { device_uvector<int> const made(2000, s, c.mr); }},
  {"copy of a vector",
   [](containers& c, rmm::cuda_stream_view s) { device_uvector<int> const made(c.vector, s, c.mr); }},
  {"reserving a vector", [](containers& c, rmm::cuda_stream_view s) { c.vector.reserve(3000, s); }},
  {"resizing a vector", [](containers& c, rmm::cuda_stream_view s) { c.vector.resize(3000, s); }},
  {"shrinking a vector", [](containers& c, rmm::cuda_stream_view s) { c.vector.shrink_to_fit(s); }},
  {"setting an element", [](containers& c, rmm::cuda_stream_view s) { c.vector.set_element_async(5, c.eight, s); }},
  {"zeroing an element", [](containers& c, rmm::cuda_stream_view s) { c.vector.set_element_to_zero_async(5, s); }},
  {"scalar",
   [](containers& c, rmm::cuda_stream_view s) {
     device_scalar<int> const made{s, c.mr};
   }},
  {"scalar with a value",
   [](containers& c, rmm::cuda_stream_view s) {
     device_scalar<int> const made{c.seven, s, c.mr};
   }},
  {"copy of a scalar",
   [](containers& c, rmm::cuda_stream_view s) {
     device_scalar<int> const made{c.scalar, s, c.mr};
   }},
  {"setting a scalar", [](containers& c, rmm::cuda_stream_view s) { c.scalar.set_value_async(c.eight, s); }},
};

// The calls that may fail. Failures of calls that free something are asserted instead.
std::vector<std::string> const fallible_calls{"cudaMalloc",
                                              "cudaMallocManaged",
                                              "cudaHostAlloc",
                                              "cudaMallocFromPoolAsync",
                                              "cuMemCreate",
                                              "cuMemMap",
                                              "cuMemSetAccess",
                                              "cudaMemcpyAsync",
                                              "cudaMemsetAsync",
                                              "cudaMemPrefetchAsync",
                                              "cudaEventCreateWithFlags",
                                              "cudaEventRecord",
                                              "cudaEventQuery",
                                              "cudaStreamWaitEvent",
                                              "cudaStreamGetId",
                                              "cudaStreamIsCapturing"};

/// Returns whether the operation threw. Fails for exceptions other than lack of memory and CUDA errors.
bool throws(named_operation const& operation, containers& target, rmm::cuda_stream_view stream)
{
  try {
    operation.run(target, stream);
    return false;
  } catch (std::bad_alloc const&) {
    return true;
  } catch (rmm::cuda_error const&) {
    return true;
  }
}

struct StrongGuarantee : Simulated, ::testing::WithParamInterface<named_resource> {
  /// Runs the operation with its n-th fault, n = 1, 2, ... until there is none left. `arm(n)` sets the fault, and `disarm()`
  /// returns whether it happened. Returns how often the operation threw.
  template <class Arm, class Disarm>
  static int run_with_failures(named_operation const& operation, Arm arm, Disarm disarm)
  {
    int thrown = 0;
    for (std::uint64_t n = 1; !HasFailure(); ++n) {
      {
        auto const resource = GetParam().make();
        rmm::mr::statistics_resource_adaptor counted{resource.get()};
        rmm::cuda_stream const stream;
        {
          containers target{stream, &counted};
          auto const when = std::string{operation.name} + ", failure " + std::to_string(n);
          arm(n);
          bool const threw = throws(operation, target, stream);
          if (!disarm()) { return thrown; }
          stream.synchronize();
          EXPECT_EQ(cudaGetLastError(), cudaSuccess) << when;
          if (threw) {
            ++thrown;
            target.expect_unchanged(when);
            EXPECT_FALSE(throws(operation, target, stream)) << when << ", tried again";
          }
          stream.synchronize();
        }
        EXPECT_EQ(counted.get_bytes_counter().value, 0) << operation.name << ", failure " << n;
      }
      EXPECT_EQ(cudasim::leak_report(), "") << operation.name << ", failure " << n;
    }
    return thrown;
  }
};

TEST_P(StrongGuarantee, HoldsWhenACudaCallFails)
{
  int thrown = 0;
  for (auto const& operation : operations) {
    for (auto const& call : fallible_calls) {
      std::uint64_t fired = 0;
      thrown += run_with_failures(
        operation,
        [&](std::uint64_t n) {
          fired = cudasim::faults_fired();
          cudasim::inject({call, n, cudaErrorMemoryAllocation, 1});
        },
        [&] {
          cudasim::clear_faults();
          return cudasim::faults_fired() != fired;
        });
    }
  }
  EXPECT_GT(thrown, 0);
}

TEST_P(StrongGuarantee, HoldsWhenHostMemoryIsMissing)
{
  for (auto const& operation : operations) {
    run_with_failures(
      operation,
      [](std::uint64_t n) {
        host_allocation_failed         = false;
        host_allocations_until_failure = n;
      },
      [] {
        host_allocations_until_failure = 0;
        return std::exchange(host_allocation_failed, false);
      });
  }
}

INSTANTIATE_TEST_SUITE_P(Resources,
                         StrongGuarantee,
                         ::testing::ValuesIn(rmm::test::every_resource()),
                         [](auto const& test) { return std::string{test.param.name}; });

/// Not inlined, because compilers may remove allocations whose end they see.
[[gnu::noinline]] std::unique_ptr<int> allocated(int value) { return std::make_unique<int>(value); }

TEST(HostAllocations, FailOnRequest)
{
  host_allocations_until_failure = 2;
  auto const first               = allocated(1);
  EXPECT_THROW(static_cast<void>(allocated(2)), std::bad_alloc);
  EXPECT_TRUE(std::exchange(host_allocation_failed, false));
  auto const third = allocated(3);
  EXPECT_EQ(*first + *third, 4);
}

}  // namespace
