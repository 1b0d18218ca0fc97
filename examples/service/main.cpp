// SPDX-License-Identifier: Apache-2.0
//
// A service. Threads take requests from a queue, each thread has its own stream, and all threads share one pool with a limit. A
// request that does not fit is postponed, not lost.

#include <rmm/cuda_stream.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace {

struct request {
  int number;
  std::size_t elements;
};

/// The requests that wait for a worker. Thread-safe.
class request_queue {
 public:
  void put(request r)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    requests_.push_back(r);
  }

  /// Removes and returns the next request; nothing if the queue is empty.
  [[nodiscard]] std::optional<request> take()
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    if (requests_.empty()) { return std::nullopt; }
    request const first = requests_.front();
    requests_.pop_front();
    return first;
  }

 private:
  std::mutex mutex_;
  std::deque<request> requests_;
};

/// Serves a request, in place of real work: fills a buffer, copies it, and checks the copy. Throws out_of_memory.
bool serve(request const& r, rmm::cuda_stream_view stream)
{
  rmm::device_uvector<unsigned char> input(r.elements, stream);
  rmm::device_uvector<unsigned char> output(r.elements, stream);
  RMM_CUDA_TRY(cudaMemsetAsync(input.data(), r.number, r.elements, stream.value()));
  RMM_CUDA_TRY(cudaMemcpyAsync(output.data(), input.data(), r.elements, cudaMemcpyDeviceToDevice, stream.value()));
  return output.back_element(stream) == static_cast<unsigned char>(r.number);  // waits for this stream only
}

struct outcome {
  std::atomic<int> right{0};
  std::atomic<int> wrong{0};
  std::atomic<int> postponed{0};
};

void work(request_queue& queue, outcome& result)
{
  // A non-blocking stream does not wait for the default stream. The thread allocates and frees all its buffers on it, so that the
  // pool serves the next request from freed buffers, without a lock or an event.
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  while (auto const r = queue.take()) {
    try {
      ++(serve(*r, stream) ? result.right : result.wrong);
    } catch (rmm::out_of_memory const&) {
      ++result.postponed;
      queue.put(*r);
      std::this_thread::yield();  // lets other threads finish and free memory
    }
  }
}

}  // namespace

int main()
{
  constexpr int threads  = 4;
  constexpr int requests = 400;
  try {
    rmm::mr::cuda_memory_resource cuda;
    rmm::mr::pool_memory_resource pool{&cuda, 16 << 20, 64 << 20};
    rmm::mr::limiting_resource_adaptor limited{&pool, 4 << 20};  // room for about two of the largest requests
    rmm::mr::set_current_device_resource(&limited);

    request_queue queue;
    for (int i = 0; i < requests; ++i) { queue.put({i, std::size_t{1} << (i % 21)}); }

    outcome result;
    std::vector<std::future<void>> workers;
    for (int i = 0; i < threads; ++i) {
      workers.push_back(std::async(std::launch::async, [&] { work(queue, result); }));
    }
    for (auto& worker : workers) { worker.get(); }  // throws what ended the worker
    rmm::mr::set_current_device_resource(nullptr);

    auto const figures = pool.figures();
    std::printf("%d requests served, %d with a wrong result; requests were postponed %d times\n",
                result.right.load(),
                result.wrong.load(),
                result.postponed.load());
    std::printf("the pool has %zu bytes in use, of %zu MiB\n", figures.live_bytes, figures.reserved_bytes >> 20);
    return result.right == requests && figures.live_bytes == 0 ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
