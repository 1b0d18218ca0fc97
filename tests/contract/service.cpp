// SPDX-License-Identifier: Apache-2.0

// A service with several threads on two devices: each thread has a stream of its own, each device a pool with its limit, its log
// and its account, and results go from thread to thread and from device to device. On a machine with one device both halves
// use that one.

#include "expect.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/binning_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/device_memory_resource.hpp>
#include <rmm/mr/device/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/device/logging_resource_adaptor.hpp>
#include <rmm/mr/device/owning_wrapper.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/mr/device/tracking_resource_adaptor.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::mr::device_memory_resource;

constexpr int workers_per_device = 3;
constexpr int jobs_per_worker    = 40;

/// Results on their way from workers to the collector.
template <class T>
class queue {
 public:
  void push(T value)
  {
    {
      std::lock_guard<std::mutex> const lock{mutex_};
      values_.push_back(std::move(value));
    }
    not_empty_.notify_one();
  }

  [[nodiscard]] T pop()
  {
    std::unique_lock<std::mutex> lock{mutex_};
    not_empty_.wait(lock, [this] { return !values_.empty(); });
    T value = std::move(values_.front());
    values_.pop_front();
    return value;
  }

 private:
  std::mutex mutex_;
  std::condition_variable not_empty_;
  std::deque<T> values_;
};

/// What a worker computed: memory of its device, which its maker has finished writing.
struct result {
  rmm::cuda_device_id device;
  int value;
  rmm::device_uvector<std::int32_t> numbers;
};

/// The resources of one device, registered for it while this lives.
class device_memory {
 public:
  device_memory(rmm::cuda_device_id device, std::shared_ptr<device_memory_resource> pool)
    : device_{device}, pool_{std::move(pool)}, account_{pool_.get()}, log_{&account_, text_, true}, tracker_{&log_}
  {
    previous_ = rmm::mr::set_per_device_resource(device_, &tracker_);
  }

  ~device_memory()
  {
    rmm::mr::set_per_device_resource(device_, previous_);
    rmm::cuda_set_device_raii const on_device{device_};
    pool_.reset();
  }

  device_memory(device_memory const&)            = delete;
  device_memory& operator=(device_memory const&) = delete;

  void expect_quiet() const
  {
    expect(tracker_.get_outstanding_allocations().empty(), "every allocation went back");
    expect(tracker_.get_allocated_bytes() == 0, "every byte went back");
    expect(account_.get_bytes_counter().value == 0, "every byte went back to the pool");
    expect(account_.get_allocations_counter().total >= jobs_per_worker, "workers used the registered resource");
    auto const rows = text_.str();
    expect(rows.rfind("Thread,Time,Action,Pointer,Size,Stream\n", 0) == 0, "the log has its header");
    expect(count(rows, ",allocate,") == count(rows, ",free,"), "the log has a row for each call");
  }

 private:
  static std::size_t count(std::string const& text, std::string const& what)
  {
    std::size_t found = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) { ++found; }
    return found;
  }

  rmm::cuda_device_id device_;
  std::shared_ptr<device_memory_resource> pool_;
  std::ostringstream text_;
  rmm::mr::statistics_resource_adaptor<device_memory_resource> account_;
  rmm::mr::logging_resource_adaptor<rmm::mr::statistics_resource_adaptor<device_memory_resource>> log_;
  rmm::mr::tracking_resource_adaptor<
    rmm::mr::logging_resource_adaptor<rmm::mr::statistics_resource_adaptor<device_memory_resource>>>
    tracker_;
  device_memory_resource* previous_{};
};

void work(rmm::cuda_device_id device, int first, queue<result>& results)
{
  rmm::cuda_set_device_raii const on_device{device};
  rmm::cuda_stream const stream;
  for (int job = 0; job < jobs_per_worker; ++job) {
    auto const size = static_cast<std::size_t>(1 + (first + job) * 37 % 1000);
    rmm::device_uvector<std::int32_t> numbers(size, stream);
    rmm::device_buffer scratch{size, stream};
    expect_success(cudaMemsetAsync(numbers.data(), 0, size * sizeof(std::int32_t), stream.value()));
    expect_success(cudaMemsetAsync(scratch.data(), 0xff, size, stream.value()));
    numbers.set_element(size - 1, first + job, stream);
    stream.synchronize();
    results.push({device, first + job, std::move(numbers)});
  }
}

// Reads each result on a stream of its own and has the memory given back there: another thread and stream than its maker's.
std::int64_t collect(int count, queue<result>& results)
{
  std::int64_t sum = 0;
  for (int i = 0; i < count; ++i) {
    auto got = results.pop();
    rmm::cuda_set_device_raii const on_device{got.device};
    rmm::cuda_stream const stream;
    auto const last = got.numbers.back_element(stream);
    expect(last == got.value, "what a worker wrote arrives");
    expect(got.numbers.size() == 1 || got.numbers.front_element(stream) == 0, "and nothing else");
    sum += last;
    got.numbers.set_stream(stream);
    got.numbers.shrink_to_fit(stream);
    auto const released = got.numbers.release();
    stream.synchronize();
  }
  return sum;
}

using make_pool = std::function<std::shared_ptr<device_memory_resource>()>;

void serve(make_pool const& make)
{
  auto const devices = rmm::get_num_cuda_devices();
  std::vector<std::unique_ptr<device_memory>> memories;
  for (int id = 0; id < std::min(devices, 2); ++id) {
    rmm::cuda_set_device_raii const on_device{rmm::cuda_device_id{id}};
    memories.push_back(std::make_unique<device_memory>(rmm::cuda_device_id{id}, make()));
  }

  queue<result> results;
  std::vector<std::thread> workers;
  int const count = 2 * workers_per_device;
  for (int worker = 0; worker < count; ++worker) {
    rmm::cuda_device_id const device{worker % static_cast<int>(memories.size())};
    workers.emplace_back(work, device, worker * jobs_per_worker, std::ref(results));
  }
  auto const sum = collect(count * jobs_per_worker, results);
  for (auto& worker : workers) { worker.join(); }

  std::int64_t const jobs = count * jobs_per_worker;
  expect(sum == jobs * (jobs - 1) / 2, "each job was done once");
  for (auto const& memory : memories) { memory->expect_quiet(); }
}

// A request that finds no memory makes the service drop its cache, and then succeeds.
void recovers()
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 1 << 20, 1 << 20};
  std::optional<rmm::device_buffer> cache;
  auto const drop_cache = [](std::size_t, void* argument) {
    auto& cached = *static_cast<std::optional<rmm::device_buffer>*>(argument);
    if (!cached) { return false; }
    cached.reset();
    return true;
  };
  rmm::mr::failure_callback_resource_adaptor<device_memory_resource> resource{&pool, drop_cache, &cache};
  cache.emplace(1 << 19, rmm::cuda_stream_default, &resource);
  rmm::device_buffer const request{1 << 20, rmm::cuda_stream_default, &resource};
  expect(!cache.has_value() && request.size() == 1 << 20, "dropping the cache made room");
  bool refused = false;
  try {
    rmm::device_buffer const too_much{256, rmm::cuda_stream_default, &resource};
  } catch (std::bad_alloc const& error) {
    refused = std::string{error.what()}.find("out_of_memory") != std::string::npos;
  }
  expect(refused, "with nothing left to drop, the error arrives");
}

void program()
{
  auto const cuda = std::make_shared<rmm::mr::cuda_memory_resource>();
  serve([&] { return rmm::mr::make_owning_wrapper<rmm::mr::pool_memory_resource>(cuda, 0, 1 << 26); });
  serve([&] { return rmm::mr::make_owning_wrapper<rmm::mr::arena_memory_resource>(cuda, 1 << 25); });
  serve([&] {
    auto pool = rmm::mr::make_owning_wrapper<rmm::mr::pool_memory_resource>(cuda, 1 << 24);
    return rmm::mr::make_owning_wrapper<rmm::mr::binning_memory_resource>(std::move(pool), 8, 10);
  });
  serve([] { return std::make_shared<rmm::mr::cuda_async_memory_resource>(1 << 20); });
  recovers();
}

}  // namespace

int main() { return run(program); }
