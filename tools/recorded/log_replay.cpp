// SPDX-License-Identifier: Apache-2.0
#include <tools/recorded/log_replay.hpp>

#include <rmm/cuda_device.hpp>

#include <algorithm>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace rmm::recorded {

namespace {

constexpr std::uintptr_t last_special_handle = 2;  // default, legacy, per-thread

}  // namespace

allocation_history::allocation_history(std::vector<rmm::detail::event> events) : size_{events.size()}
{
  std::map<std::size_t, std::size_t> numbers;  // by thread
  std::size_t index = 0;
  thread_of_.reserve(size_);
  for (auto& event : events) {
    auto const thread = numbers.try_emplace(event.thread_id, numbers.size()).first->second;
    if (thread == by_thread_.size()) { by_thread_.emplace_back(); }
    event.index = index++;
    thread_of_.push_back(static_cast<std::uint32_t>(thread));
    by_thread_[thread].push_back({event, stream_of(event)});
    logged_failures_ += event.act == rmm::detail::action::ALLOCATE_FAILURE ? 1 : 0;
    auto const place = std::lower_bound(devices_.begin(), devices_.end(), event.device);
    if (place == devices_.end() || *place != event.device) { devices_.insert(place, event.device); }
  }
}

std::size_t allocation_history::stream_of(rmm::detail::event const& event)
{
  if (event.stream <= last_special_handle) { return special_stream; }
  auto const next                  = own_streams_.size();
  auto const [of_handle, is_first] = by_handle_.try_emplace({event.device, event.stream}, next);
  auto number                      = of_handle->second;
  if (event.stream_id != 0) {
    bool const is_nameless     = !is_first && own_streams_[number].id == 0;  // its id was unknown at its earlier calls
    auto const named           = is_first || is_nameless ? number : next;
    auto const [of_id, is_new] = by_id_.try_emplace({event.device, event.stream_id}, named);
    if (is_new && named == next && !is_first) { own_streams_[number].has_successor = true; }
    number            = of_id->second;
    of_handle->second = number;
  }
  if (number == next) { own_streams_.push_back({event.device, event.stream, 0, 0, false}); }
  auto& found = own_streams_[number];
  if (event.stream_id != 0) { found.id = event.stream_id; }
  ++found.calls;
  return number;
}

/// A scope in which a thread can change its device; the destructor restores the first one.
class log_replay::current_device {
 public:
  current_device() : first_{rmm::get_current_cuda_device().value()}, now_{first_} {}
  ~current_device()
  {
    if (now_ != first_) { rmm::detail::make_device_current(first_); }
  }
  current_device(current_device const&)            = delete;
  current_device& operator=(current_device const&) = delete;

  void become(int device)
  {
    if (device != now_) { rmm::detail::make_device_current(device); }
    now_ = device;
  }

 private:
  int first_;
  int now_;
};

log_replay::log_replay(allocation_history const& history, rmm::mr::device_memory_resource& resource)
  : log_replay{history, {{rmm::get_current_cuda_device().value(), &resource, {}}}}
{}

log_replay::log_replay(allocation_history const& history, std::vector<replay_target> targets)
  : history_{history},
    targets_{std::move(targets)},
    on_one_target_{targets_.size() == 1},
    knows_reserved_{std::all_of(
      targets_.begin(), targets_.end(), [](replay_target const& each) { return each.reserved != nullptr; })},
    turns_(history.thread_count()),
    passes_(history.thread_count()),
    streams_(history.own_streams().size())
{
  for (auto const device : history.devices()) { static_cast<void>(target_of(device)); }
  for (std::size_t i = 0; i < streams_.size(); ++i) { streams_[i].calls_left = history.own_streams()[i].calls; }
}

log_replay::~log_replay() = default;

std::size_t log_replay::target_of(int device) const
{
  if (on_one_target_) { return 0; }
  auto const found =
    std::find_if(targets_.begin(), targets_.end(), [&](replay_target const& each) { return each.device == device; });
  if (found == targets_.end()) {
    throw std::invalid_argument{"the log has events of device " + std::to_string(device) +
                                ", but no resource to replay them on was given"};
  }
  return static_cast<std::size_t>(found - targets_.begin());
}

/// Requires that the stream's device is current.
rmm::cuda_stream_view log_replay::view_of(std::size_t stream, std::uintptr_t handle)
{
  if (stream == special_stream) { return rmm::cuda_stream_view{reinterpret_cast<cudaStream_t>(handle)}; }
  auto& found = streams_[stream].stream;
  if (!found) { found.emplace(rmm::cuda_stream::flags::non_blocking); }
  return found->view();
}

bool log_replay::play(std::size_t thread)
{
  current_device device;
  auto const pass = passes_[thread]++;
  std::unique_lock<std::mutex> lock{mutex_};
  for (auto const& call : history_.of_thread(thread)) {
    turns_[thread].wait(lock, [&] { return failure_ || next_ == pass * history_.size() + call.event.index; });
    if (failure_) { return false; }
    try {
      play_call(call, device);
    } catch (std::exception const& e) {
      failure_ = replay_failure{call.event, e.what(), moment_of(call.event), pass};
      end_pass(device);
    }
    ++next_;
    if (next_ % history_.size() == 0 && !failure_) { end_pass(device); }
    if (failure_) {
      for (auto& each : turns_) { each.notify_all(); }
      return false;
    }
    auto const next = history_.thread_of(next_ % history_.size());
    if (next != thread) { turns_[next].notify_all(); }
  }
  return true;
}

void log_replay::play_call(logged_call const& call, current_device& device)
{
  auto const target = target_of(call.event.device);
  device.become(targets_[target].device);
  switch (call.event.act) {
    case rmm::detail::action::ALLOCATE:
      allocate(call, target);
      break;
    case rmm::detail::action::FREE:
      deallocate(call, target);
      break;
    case rmm::detail::action::ALLOCATE_FAILURE:
      break;
  }
  measure(call.event);
  if (call.stream != special_stream) {
    auto& stream = streams_[call.stream];
    if (--stream.calls_left == 0 && history_.own_streams()[call.stream].has_successor) { stream.stream.reset(); }
  }
}

void log_replay::allocate(logged_call const& call, std::size_t target)
{
  auto const& event = call.event;
  auto const stream = view_of(call.stream, event.stream);
  auto& resource    = *targets_[target].resource;
  void* const ptr   = resource.allocate(event.size, stream);
  if (event.pointer == 0 || event.size == 0) {  // many allocations may have this address, without a free
    resource.deallocate(ptr, event.size, stream);
    return;
  }
  allocation const made{ptr, event.size, target, call.stream, event.stream};
  auto const [entry, is_new] = live_.try_emplace({event.device, event.pointer}, made);
  if (!is_new) {  // the free is missing in the log
    auto const lost = std::exchange(entry->second, made);
    live_bytes_ -= lost.bytes;
    resource.deallocate(lost.ptr, lost.bytes, stream);
  }
  live_bytes_ += event.size;
}

void log_replay::deallocate(logged_call const& call, std::size_t target)
{
  if (call.event.pointer == 0) { return; }
  auto const found = live_.find({call.event.device, call.event.pointer});
  if (found == live_.end()) {
    unknown_frees_ += call.event.size == 0 ? 0 : 1;
    return;
  }
  auto const freed = found->second;
  live_.erase(found);
  live_bytes_ -= freed.bytes;
  targets_[target].resource->deallocate(freed.ptr, freed.bytes, view_of(call.stream, call.event.stream));
}

replay_moment log_replay::moment_of(rmm::detail::event const& event) const
{
  replay_moment now{event.index, event.time_ns, live_bytes_, 0};
  if (knows_reserved_) {
    for (auto const& each : targets_) { now.reserved += each.reserved(); }
  }
  return now;
}

void log_replay::measure(rmm::detail::event const& event)
{
  auto const now = moment_of(event);
  if (observer_) { observer_(now); }
  if (next_ >= history_.size()) { return; }  // only the first pass counts
  if (now.live > peak_live_.live) { peak_live_ = now; }
  if (now.reserved > peak_reserved_.reserved) { peak_reserved_ = now; }
  auto const distance = std::max<std::size_t>(1, history_.size() / points_of_curve);
  if (event.index % distance == 0 || event.index + 1 == history_.size()) { curve_.push_back(now); }
}

void log_replay::end_pass(current_device& device)
{
  if (next_ <= history_.size()) { left_ = {live_.size(), live_bytes_}; }  // only the first pass counts
  for (auto const& [key, rest] : live_) {
    device.become(targets_[rest.target].device);
    targets_[rest.target].resource->deallocate(rest.ptr, rest.bytes, view_of(rest.stream, rest.handle));
  }
  live_.clear();
  live_bytes_ = 0;
  for (std::size_t i = 0; i < streams_.size(); ++i) { streams_[i] = {{}, history_.own_streams()[i].calls}; }
}

}  // namespace rmm::recorded
