// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/replay/log_replay.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace rmm::benchmarks {

namespace {

constexpr std::uintptr_t last_special_stream = 2;  // default, legacy, per-thread

}  // namespace

allocation_history::allocation_history(std::vector<rmm::detail::event> events) : size_{events.size()}
{
  std::map<std::size_t, std::size_t> numbers;  // of the threads
  std::size_t index = 0;
  for (auto& event : events) {
    auto const thread = numbers.try_emplace(event.thread_id, numbers.size()).first->second;
    if (thread == by_thread_.size()) { by_thread_.emplace_back(); }
    event.index = index++;
    by_thread_[thread].push_back(event);
    bool const is_new = std::find(own_streams_.begin(), own_streams_.end(), event.stream) == own_streams_.end();
    if (event.stream > last_special_stream && is_new) { own_streams_.push_back(event.stream); }
  }
}

log_replay::log_replay(allocation_history const& history, rmm::mr::device_memory_resource& resource)
  : history_{history}, resource_{resource}, passes_(history.thread_count())
{
  for (auto const stream : history.own_streams()) {
    streams_.emplace(stream, std::make_unique<rmm::cuda_stream>(rmm::cuda_stream::flags::non_blocking));
  }
}

log_replay::~log_replay() = default;

rmm::cuda_stream_view log_replay::stream_of(std::uintptr_t logged) const
{
  if (logged <= last_special_stream) { return rmm::cuda_stream_view{reinterpret_cast<cudaStream_t>(logged)}; }
  return streams_.at(logged)->view();
}

bool log_replay::play(std::size_t thread)
{
  auto const pass = passes_[thread]++;
  for (auto const& event : history_.of_thread(thread)) {
    std::unique_lock<std::mutex> lock{mutex_};
    turn_.wait(lock, [&] { return failure_ || next_ == pass * history_.size() + event.index; });
    if (failure_) { return false; }
    try {
      play_event(event);
    } catch (std::exception const& e) {
      failure_ = replay_failure{event, e.what()};
      end_pass();
    }
    ++next_;
    if (next_ % history_.size() == 0 && !failure_) { end_pass(); }
    bool const failed = failure_.has_value();
    lock.unlock();
    turn_.notify_all();
    if (failed) { return false; }
  }
  return true;
}

void log_replay::play_event(rmm::detail::event const& event)
{
  switch (event.act) {
    case rmm::detail::action::ALLOCATE:
      return allocate(event);
    case rmm::detail::action::FREE:
      return deallocate(event);
    case rmm::detail::action::ALLOCATE_FAILURE:
      return;
  }
}

void log_replay::allocate(rmm::detail::event const& event)
{
  void* const ptr = resource_.allocate(event.size, stream_of(event.stream));
  if (event.pointer == 0) {  // of no bytes; there may be many with this address
    resource_.deallocate(ptr, event.size, stream_of(event.stream));
    return;
  }
  auto const [entry, is_new] = live_.try_emplace(event.pointer, allocation{ptr, event.size, event.stream});
  if (!is_new) {  // the log has lost the free
    auto const lost = std::exchange(entry->second, allocation{ptr, event.size, event.stream});
    live_bytes_ -= lost.bytes;
    resource_.deallocate(lost.ptr, lost.bytes, stream_of(lost.stream));
  }
  live_bytes_ += event.size;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
}

void log_replay::deallocate(rmm::detail::event const& event)
{
  if (event.pointer == 0) { return; }
  auto const found = live_.find(event.pointer);
  if (found == live_.end()) {
    ++unknown_frees_;
    return;
  }
  auto const freed = found->second;
  live_.erase(found);
  live_bytes_ -= freed.bytes;
  resource_.deallocate(freed.ptr, event.size, stream_of(event.stream));
}

void log_replay::end_pass()
{
  left_ = {live_.size(), live_bytes_};
  for (auto const& [pointer, rest] : live_) { resource_.deallocate(rest.ptr, rest.bytes, stream_of(rest.stream)); }
  live_.clear();
  live_bytes_ = 0;
}

}  // namespace rmm::benchmarks
