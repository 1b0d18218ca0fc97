// SPDX-License-Identifier: Apache-2.0
//
// NCCL across the GPUs of a host, with memory from RMM: one pool and one stream for each GPU. An all-reduce is work on a stream, like
// a kernel, so it needs no further synchronization with the memory.

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

void check(ncclResult_t result)
{
  if (result != ncclSuccess) { throw std::runtime_error{ncclGetErrorString(result)}; }
}

struct destroy_communicator {
  void operator()(ncclComm_t communicator) const { ncclCommDestroy(communicator); }
};
using communicator = std::unique_ptr<ncclComm, destroy_communicator>;

/// The resources, stream and data of one GPU, which has to be current in constructor and destructor. Members are destroyed in reverse
/// order: the data, the stream, the pool.
class rank {
 public:
  explicit rank(std::size_t elements) : pool_{&cuda_, 32 << 20}, data_{elements, stream_, pool_} {}

  [[nodiscard]] rmm::cuda_stream_view stream() const { return stream_; }
  [[nodiscard]] rmm::device_uvector<float>& data() { return data_; }

 private:
  rmm::mr::cuda_memory_resource cuda_;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool_;
  rmm::cuda_stream stream_;
  rmm::device_uvector<float> data_;
};

bool run(int gpus)
{
  constexpr std::size_t elements = 1 << 20;

  std::vector<ncclComm_t> made(static_cast<std::size_t>(gpus));
  check(ncclCommInitAll(made.data(), gpus, nullptr));
  std::vector<communicator> communicators(made.begin(), made.end());

  std::vector<std::unique_ptr<rank>> ranks;
  std::vector<std::vector<float>> input;
  for (int i = 0; i < gpus; ++i) {
    rmm::cuda_set_device_raii const on_device{rmm::cuda_device_id{i}};
    auto& own = *ranks.emplace_back(std::make_unique<rank>(elements));
    input.emplace_back(elements, static_cast<float>(i + 1));
    RMM_CUDA_TRY(cudaMemcpyAsync(
      own.data().data(), input.back().data(), elements * sizeof(float), cudaMemcpyHostToDevice, own.stream().value()));
  }

  check(ncclGroupStart());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    auto& data = ranks[i]->data();
    check(ncclAllReduce(
      data.data(), data.data(), elements, ncclFloat, ncclSum, communicators[i].get(), ranks[i]->stream().value()));
  }
  check(ncclGroupEnd());

  auto const expected = static_cast<float>(gpus * (gpus + 1) / 2);
  bool right          = true;
  for (int i = 0; i < gpus; ++i) {
    rmm::cuda_set_device_raii const on_device{rmm::cuda_device_id{i}};
    auto& own = *ranks[static_cast<std::size_t>(i)];
    right =
      right && own.data().front_element(own.stream()) == expected && own.data().back_element(own.stream()) == expected;
  }
  for (int i = 0; i < gpus; ++i) {  // a pool is destroyed while its device is current
    rmm::cuda_set_device_raii const on_device{rmm::cuda_device_id{i}};
    ranks[static_cast<std::size_t>(i)].reset();
  }
  std::printf("sum over %d GPU(s) of 1 to %d: %s\n", gpus, gpus, right ? "right" : "WRONG");
  return right;
}

}  // namespace

int main()
{
  try {
    int const gpus = rmm::get_num_cuda_devices();
    if (gpus < 2) { std::printf("%d GPU: this example shows more with two or more\n", gpus); }
    return run(gpus) ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
