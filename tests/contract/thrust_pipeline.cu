// SPDX-License-Identifier: Apache-2.0

// Sales by shop: a pipeline of Thrust algorithms whose memory, temporary memory included, comes from resource adaptors of the
// program's own.

#include "expect.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/device_vector.hpp>
#include <rmm/exec_policy.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/device_memory_resource.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/thrust_allocator_adaptor.hpp>
#include <rmm/mr/is_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>

#include <thrust/fill.h>
#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <map>
#include <vector>

namespace {

/// Knows how many bytes are in use and the most there were. In the style of 24.08: over a pointer.
class gauge final : public rmm::mr::device_memory_resource {
 public:
  explicit gauge(device_memory_resource* upstream) : upstream_{upstream} {}

  rmm::device_async_resource_ref get_upstream_resource() const noexcept { return upstream_; }
  [[nodiscard]] std::size_t in_use() const { return in_use_; }
  [[nodiscard]] std::size_t most() const { return most_; }
  [[nodiscard]] std::size_t allocations() const { return allocations_; }

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    void* const ptr = upstream_->allocate(bytes, stream);
    ++allocations_;
    in_use_ += bytes;
    most_ = std::max(most_, in_use_);
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    upstream_->deallocate(ptr, bytes, stream);
    in_use_ -= bytes;
  }

  bool do_is_equal(device_memory_resource const& other) const noexcept override { return this == &other; }

  device_memory_resource* upstream_;
  std::size_t allocations_{0};
  std::size_t in_use_{0};
  std::size_t most_{0};
};

/// Says on which streams memory was asked for. In the style of 25.12: over a reference.
class stream_book final : public rmm::mr::device_memory_resource {
 public:
  explicit stream_book(rmm::device_async_resource_ref upstream) : upstream_{upstream} {}

  [[nodiscard]] rmm::device_async_resource_ref get_upstream_resource() const noexcept { return upstream_; }

  [[nodiscard]] bool knows_only(rmm::cuda_stream_view stream) const
  {
    return calls_.size() == 1 && calls_.begin()->first == stream.value();
  }

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    ++calls_[stream.value()];
    return upstream_.allocate(stream, bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
  }

  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) noexcept override
  {
    upstream_.deallocate(stream, ptr, bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
  }

  rmm::device_async_resource_ref upstream_;
  std::map<cudaStream_t, int> calls_;
};

static_assert(rmm::mr::is_resource_adaptor<gauge> && rmm::mr::is_resource_adaptor<stream_book>);

constexpr int shop_count = 10;

struct shop_of {
  __host__ __device__ int operator()(int sale) const { return sale % shop_count; }
};

struct with_tax {
  __host__ __device__ double operator()(double price) const { return price * 1.2; }
};

__global__ void count_large(double const* values, std::size_t size, double bound, int* count)
{
  auto const index = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index < size && values[index] > bound) { atomicAdd(count, 1); }
}

struct totals {
  rmm::device_uvector<int> shops;
  rmm::device_uvector<double> sums;
};

totals sum_by_shop(rmm::device_uvector<int>& shops,
                   rmm::device_uvector<double>& prices,
                   rmm::cuda_stream_view stream,
                   rmm::device_async_resource_ref mr)
{
  auto const policy = rmm::exec_policy_nosync(stream, mr);
  thrust::transform(policy, prices.begin(), prices.end(), prices.begin(), with_tax{});
  thrust::sort_by_key(policy, shops.begin(), shops.end(), prices.begin());
  totals result{rmm::device_uvector<int>(shops.size(), stream, mr),
                rmm::device_uvector<double>(shops.size(), stream, mr)};
  auto const ends   = thrust::reduce_by_key(rmm::exec_policy(stream, mr),
                                          shops.begin(),
                                          shops.end(),
                                          prices.begin(),
                                          result.shops.begin(),
                                          result.sums.begin());
  auto const groups = static_cast<std::size_t>(ends.first - result.shops.begin());
  result.shops.resize(groups, stream);
  result.sums.resize(groups, stream);
  result.shops.shrink_to_fit(stream);
  result.sums.shrink_to_fit(stream);
  return result;
}

void sums(gauge& memory)
{
  constexpr std::size_t sales = 100'000;
  rmm::cuda_stream const stream;
  stream_book streams{memory};
  {
    rmm::device_uvector<int> shops(sales, stream, streams);
    rmm::device_uvector<double> prices(sales, stream, streams);
    thrust::sequence(rmm::exec_policy(stream, streams), shops.begin(), shops.end());
    thrust::transform(rmm::exec_policy(stream, streams), shops.begin(), shops.end(), shops.begin(), shop_of{});
    thrust::fill(rmm::exec_policy(stream, streams), prices.begin(), prices.end(), 10.0);
    auto const before = memory.allocations();
    auto const result = sum_by_shop(shops, prices, stream, streams);
    expect(memory.allocations() > before + 2, "temporary memory comes from the resource");
    expect(result.shops.size() == shop_count, "there is a sum for each shop");
    std::vector<double> host(shop_count);
    expect_success(cudaMemcpyAsync(
      host.data(), result.sums.data(), sizeof(double) * host.size(), cudaMemcpyDefault, stream.view().value()));
    stream.synchronize();
    for (double const sum : host) { expect(std::abs(sum - 120'000.0) < 1e-3, "each shop sold the same"); }

    rmm::device_scalar<int> large{0, stream, streams};
    count_large<<<1, 128, 0, stream.value()>>>(result.sums.data(), result.sums.size(), 1000.0, large.data());
    expect(large.value(stream) == shop_count, "kernels use the containers' pointers");
  }
  expect(streams.knows_only(stream), "all memory was asked for on the stream");
  expect(memory.in_use() == 0 && memory.most() >= sales * (sizeof(int) + sizeof(double)), "and went back");
}

void vectors(gauge& memory)
{
  {
    rmm::device_vector<int> const sevens(1000, 7);
    expect(memory.in_use() >= 1000 * sizeof(int), "vectors use the registered resource");
    expect(thrust::reduce(rmm::exec_policy(), sevens.begin(), sevens.end()) == 7000, "vectors are initialised");
    rmm::device_vector<int> const copy(sevens.begin(), sevens.end(), rmm::mr::thrust_allocator<int>{});
    expect(copy == sevens, "vectors are copied");
  }
  expect(memory.in_use() == 0, "vectors give their memory back");
}

void program()
{
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::cout << "needs a GPU: not run\n";
    return;
  }
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource pool{&cuda, 1 << 26};
  gauge memory{&pool};
  auto* const previous = rmm::mr::set_current_device_resource(&memory);
  sums(memory);
  vectors(memory);
  rmm::mr::set_current_device_resource(previous);
}

}  // namespace

int main() { return run(program); }
