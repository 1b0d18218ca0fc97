// SPDX-License-Identifier: Apache-2.0
//
// A pipeline of Thrust's algorithms on one stream: how much each customer spent in all visits. Inputs, results and the temporary
// memory of the algorithms come from one pool. The host waits for the device only when it reads a result.

#include <rmm/cuda_stream.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/exec_policy.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <thrust/tabulate.h>

#include <cstddef>
#include <cstdio>
#include <exception>

namespace {

constexpr int customers      = 1000;
constexpr std::size_t visits = 1'000'000;

struct customer_of_visit {
  __host__ __device__ int operator()(std::size_t visit) const { return static_cast<int>(visit * 7919 % customers); }
};

struct price_of_visit {
  __host__ __device__ int operator()(std::size_t visit) const { return static_cast<int>(visit % 10); }
};

bool run(rmm::cuda_stream_view stream)
{
  // Algorithms run on `stream`, take temporary memory from the current resource, and wait only if they return a result.
  rmm::exec_policy_nosync const policy{stream};

  rmm::device_uvector<int> customer(visits, stream);
  rmm::device_uvector<int> price(visits, stream);
  thrust::tabulate(policy, customer.begin(), customer.end(), customer_of_visit{});
  thrust::tabulate(policy, price.begin(), price.end(), price_of_visit{});

  thrust::sort_by_key(policy, customer.begin(), customer.end(), price.begin());

  rmm::device_uvector<int> name(customers, stream);
  rmm::device_uvector<int> spent(customers, stream);
  auto const ends  = thrust::reduce_by_key(policy,
                                          customer.begin(),
                                          customer.end(),
                                          price.begin(),
                                          name.begin(),
                                          spent.begin());  // waits, because it returns a result
  auto const found = static_cast<std::size_t>(ends.first - name.begin());
  spent.resize(found, stream);

  auto const total = thrust::reduce(policy, spent.begin(), spent.end(), 0LL, thrust::plus<long long>{});
  std::printf("%zu customers spent %lld\n", found, total);
  return found == customers && total == 4'500'000;
}

}  // namespace

int main()
{
  try {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource pool{&cuda, 256 << 20};
    rmm::mr::statistics_resource_adaptor statistics{&pool};
    rmm::mr::set_current_device_resource(&statistics);
    bool right = false;
    {
      rmm::cuda_stream const stream;
      right = run(stream);
      stream.synchronize();
    }
    rmm::mr::set_current_device_resource(nullptr);
    std::printf("%lld allocations, at most %lld KiB at a time: inputs, results and temporary memory of Thrust\n",
                static_cast<long long>(statistics.get_allocations_counter().total),
                static_cast<long long>(statistics.get_bytes_counter().peak / 1024));
    return right ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
