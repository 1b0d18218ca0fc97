// SPDX-License-Identifier: Apache-2.0
//
// Several GPUs, each with a pool that is registered once. A container then takes memory from the pool of the device that is current
// when the container is made. Also works with one GPU.

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace {

using pool_resource = rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;

/// Pools for all devices. They are registered as long as this object lives.
class pools {
 public:
  explicit pools(std::size_t initial_bytes)
  {
    for (int i = 0; i < rmm::get_num_cuda_devices(); ++i) {
      rmm::cuda_device_id const device{i};
      rmm::cuda_set_device_raii const on_device{
        device};  // a resource belongs to the device that is current when it is made
      pools_.push_back(std::make_unique<pool_resource>(&cuda_, initial_bytes));
      rmm::mr::set_per_device_resource(device, pools_.back().get());
    }
  }

  ~pools()
  {
    for (int i = 0; i < count(); ++i) {
      rmm::cuda_device_id const device{i};
      rmm::mr::set_per_device_resource(device, nullptr);
      rmm::cuda_set_device_raii const on_device{device};
      pools_[static_cast<std::size_t>(i)].reset();
    }
  }

  pools(pools const&)            = delete;
  pools& operator=(pools const&) = delete;

  [[nodiscard]] int count() const { return static_cast<int>(pools_.size()); }
  [[nodiscard]] std::size_t live_bytes(int device) const
  {
    return pools_[static_cast<std::size_t>(device)]->figures().live_bytes;
  }

 private:
  rmm::mr::cuda_memory_resource cuda_;
  std::vector<std::unique_ptr<pool_resource>> pools_;
};

/// The stream and the data of one device: the device that is current in the constructor.
struct part {
  rmm::cuda_stream stream;
  rmm::device_uvector<unsigned char> data;

  explicit part(std::size_t bytes) : data(bytes, stream) {}
};

bool run(pools const& all)
{
  constexpr std::size_t bytes = 1 << 20;

  std::vector<part> parts;
  for (int i = 0; i < all.count(); ++i) {
    rmm::cuda_set_device_raii const on_device{rmm::cuda_device_id{i}};
    parts.emplace_back(bytes);
    auto& own = parts.back();
    RMM_CUDA_TRY(cudaMemsetAsync(own.data.data(), i + 1, bytes, own.stream.value()));
    std::printf("device %d: %zu bytes of its pool are in use\n", i, all.live_bytes(i));
  }

  // The first device collects one byte of each device. The other streams have to be done before.
  rmm::cuda_set_device_raii const on_first{rmm::cuda_device_id{0}};
  auto& first = parts.front();
  rmm::device_uvector<unsigned char> collected(parts.size(), first.stream);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].stream.synchronize();
    RMM_CUDA_TRY(cudaMemcpyPeerAsync(
      collected.element_ptr(i), 0, parts[i].data.data(), static_cast<int>(i), 1, first.stream.value()));
  }
  bool right = true;
  for (std::size_t i = 0; i < parts.size(); ++i) { right = right && collected.element(i, first.stream) == i + 1; }
  return right;
  // The parts are freed here, while device 0 is current. Each still gives its memory back to the pool of its own device.
}

}  // namespace

int main()
{
  try {
    pools const all{8 << 20};
    if (all.count() == 0) {
      std::fprintf(stderr, "there is no device, or cudaGetDeviceCount fails\n");
      return 1;
    }
    bool const right = run(all);
    std::size_t live{0};
    for (int i = 0; i < all.count(); ++i) { live += all.live_bytes(i); }
    std::printf("%d device(s): the result is %s, %zu bytes are in use\n", all.count(), right ? "right" : "WRONG", live);
    return right && live == 0 ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
