// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/biased_lock.hpp>
#include <rmm/detail/base/exit_action.hpp>
#include <rmm/detail/base/interpreter_frames.hpp>
#include <rmm/detail/base/log_time.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/private_file.hpp>
#include <rmm/detail/base/tag_table.hpp>
#include <rmm/detail/base/thread_slots.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/cuda/stream_lifetimes.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/stack_trace.hpp>
#include <rmm/detail/trace/format.hpp>
#include <rmm/detail/trace/trace_clock.hpp>
#include <rmm/detail/trace/trace_file.hpp>
#include <rmm/detail/trace/trace_options.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {
namespace trace {

/// The data that a writer shares with the buffers of its threads.
struct trace_context {
  trace_context(mr::trace_options const& options, std::string const& path, int on_device)
    : file{path, options.max_file_bytes, options.max_files},
      clock{file.header().clock_ns},
      flush_ns{static_cast<std::uint64_t>(std::max<std::int64_t>(options.flush_interval.count(), 0)) * 1'000'000U},
      buffer_bytes{std::clamp(options.buffer_bytes, block_encoder::smallest_capacity, largest_payload)},
      stack_every{options.stack_every},
      device{on_device}
  {}

  detail::mutex file_mutex;  // guards file
  trace_file file;

  // Changes some hundred times a second, so it has its own cache line.
  alignas(64) trace_clock clock;

  // Read with each event, so it is not in the cache line of members that change often.
  alignas(64) std::uint64_t const flush_ns;
  std::size_t const buffer_bytes;
  std::size_t const stack_every;
  int const device;
  // Whether two threads, or one, have recorded events. A single thread need not read the time in order. The second thread sets has_threads
  // within its first event: of two first updates of has_thread, one reads the other. That store happens before all that later receives
  // something from this thread, so relaxed loads read it there: a load never reads a value older than one that happens before it.
  std::atomic<bool> has_threads{false};
  std::atomic<bool> has_thread{false};
  std::atomic<std::uint64_t> lost{0};  // all events that could not be written; relaxed, because it guards no data
};

/// The events of one thread that are not written yet.
///
/// A block defines a place (device, stream and tag) before its first event there, and names it by a number. The numbers are looked up in a
/// table with one slot for each value of a hash.
///
/// Order: the members are plain variables.
/// - The thread uses them inside `lock`, and the writer's flush() when it has locked the thread out. Invariant O2 of biased_lock makes each
///   see what the other wrote.
/// - adopt() and release() run with the mutex of per_thread held, and so do both passes of flush(). So a thread sees what the last thread
///   of the object wrote, and a thread that ends between the passes writes its events itself, without `lock`.
/// - is_kept_out belongs to flush(), under the writer's mutex.
/// An event that happens before flush() is written when that returns. Its thread was in the list of per_thread before the event, so the
/// first pass finds it. Either the thread ends before the second pass, and writes the event, or the second pass writes it.
///
/// The thread loads the number of ended streams relaxed. Whoever passes the handle of a new stream to it does so after the number changed,
/// so the load reads that change or a later one.
/// tests/models/trace_model.cpp tries all executions.
class alignas(64) thread_trace {
 public:
  /// Called by the thread, before it uses the buffer.
  void adopt() noexcept
  {
    thread_ = static_cast<std::uint64_t>(thread_number());
    try {
      tag_ = tags().current();
    } catch (std::exception const&) {
      tag_ = &no_tag;
    }
    ids_.clear();
    slots_ = {};
    line_  = {};  // the first event reads the time in order
  }

  /// Called by the thread when it ends. Writes the events and frees their memory, which would grow with the most threads that ever ran.
  /// A later thread that adopts the object makes an encoder and begins a block. `lost_` and `context_` are kept.
  void release() noexcept
  {
    write();
    encoder_.reset();
    flush_at_     = 0;
    tags_named_   = {};
    frames_named_ = {};
    ids_          = {};
  }

  /// Records an event. The caller is the thread, inside the lock.
  RMM_ALWAYS_INLINE void add(
    trace_context& context, kind what, void const* ptr, std::size_t bytes, cudaStream_t stream) noexcept
  {
    auto const time   = context.clock.now(line_, context.has_threads.load(std::memory_order_relaxed));
    auto const tag    = *tag_;
    auto const& found = slot_of(stream, tag);
    if (time < flush_at_ && (what == kind::allocate ? found.has_id : found.is_used) && found.stream == stream &&
        found.tag == tag && lifetimes_seen_ == lifetimes_->load(std::memory_order_relaxed) && encoder_->has_room() &&
        (what != kind::allocate || allocations_to_stack_ != 1)) {
      allocations_to_stack_ -= what == kind::allocate ? 1 : 0;
      encoder_->add(what, found.place, time, bytes, reinterpret_cast<std::uintptr_t>(ptr));
    } else {
      add_slowly(context, what, ptr, bytes, stream, time);
    }
  }

  /// Records a failed allocation and its reason. The caller is the thread, inside the lock.
  RMM_COLD void add_failure(trace_context& context,
                            std::size_t bytes,
                            cudaStream_t stream,
                            std::string_view report) noexcept
  {
    auto const time = context.clock.now(line_, true);
    add_slowly(context, kind::allocate_failure, nullptr, bytes, stream, time, report);
  }

  /// Writes the events. The caller is the thread, or keeps the thread out.
  RMM_COLD void write() noexcept
  {
    if (encoder_ == nullptr || !encoder_->is_open()) { return; }
    auto const events         = encoder_->events();
    auto const [block, bytes] = encoder_->finish();
    flush_at_                 = 0;  // the next event begins a block
    detail::mutex_lock const guard{context_->file_mutex};
    if (context_->file.append(block, bytes)) {
      lost_ -= lost_told_;
    } else {
      lose(events);
    }
  }

  biased_lock lock;
  bool is_kept_out{false};  // used by the thread that keeps the owner out

 private:
  struct slot {
    cudaStream_t stream{};
    std::uint32_t tag{};
    std::uint16_t place{};
    bool is_used{false};
    bool has_id{false};
  };
  static constexpr unsigned slot_bits = 5;

  [[nodiscard]] RMM_ALWAYS_INLINE slot& slot_of(cudaStream_t stream, std::uint32_t tag) noexcept
  {
    auto const mixed = (reinterpret_cast<std::uintptr_t>(stream) + tag) * 0x9E3779B97F4A7C15U;
    return slots_[std::size_t{mixed >> (64U - slot_bits)}];
  }

  /// Records an event if its place is not known, the block is full or old, or a stack is due.
  RMM_COLD void add_slowly(trace_context& context,
                           kind what,
                           void const* ptr,
                           std::size_t bytes,
                           cudaStream_t stream,
                           std::uint64_t time,
                           std::string_view report = {}) noexcept
  {
    try {
      prepare(context);
      if (encoder_->is_open() && (time >= flush_at_ || encoder_->thread() != thread_ || places_ == most_places ||
                                  !encoder_->has_room(extra_bytes))) {
        write();
      }
      if (!encoder_->is_open()) { begin(context, time); }
      if (what == kind::allocate && --allocations_to_stack_ == 0) {
        allocations_to_stack_ = context.stack_every;
        add_stack();
      }
      auto& there = slot_of(stream, *tag_);
      if (!there.is_used || there.stream != stream || there.tag != *tag_ || (!there.has_id && what == kind::allocate)) {
        define(context, there, stream, what == kind::allocate);
      }
      if (!report.empty()) { encoder_->add_report(report); }
      encoder_->add(what, there.place, time, bytes, reinterpret_cast<std::uintptr_t>(ptr));
      if (context.flush_ns == 0) { write(); }
    } catch (std::exception const&) {
      lose(1);
    }
  }

  /// Throws std::bad_alloc, or std::system_error.
  void prepare(trace_context& context)
  {
    if (context_ == nullptr) { be_used_first(context); }
    if (encoder_ == nullptr) { encoder_ = std::make_unique<block_encoder>(context.buffer_bytes); }
    auto const ends = lifetimes_->load(std::memory_order_relaxed);
    if (ends != lifetimes_seen_) {  // a stream has ended, so its handle may name another one now
      lifetimes_seen_ = ends;
      ids_.clear();
      slots_ = {};
    }
  }

  void be_used_first(trace_context& context) noexcept
  {
    context_              = &context;
    lifetimes_            = &known_streams().ends();
    allocations_to_stack_ = context.stack_every == 0 ? never : context.stack_every;
    if (context.has_thread.exchange(true, std::memory_order_relaxed)) {
      context.has_threads.store(true, std::memory_order_relaxed);
    }
  }

  void begin(trace_context& context, std::uint64_t time) noexcept
  {
    lost_told_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(lost_, 0xFFFF'FFFFU));
    encoder_->begin(thread_, time, lost_told_);
    flush_at_ = time + std::min(context.flush_ns, never - time);
    slots_    = {};
    places_   = 0;
    tags_named_.clear();
    frames_named_.clear();
  }

  void define(trace_context const& context, slot& there, cudaStream_t stream, bool may_ask)
  {
    place where{context.device, *tag_, reinterpret_cast<std::uintptr_t>(stream), id_of(stream, may_ask)};
    bool const is_named = std::find(tags_named_.begin(), tags_named_.end(), where.tag) != tags_named_.end();
    if (where.tag != 0 && !is_named) {
      tags_named_.push_back(where.tag);
      encoder_->define_tag(where.tag, tags().name_of(where.tag));
    }
    encoder_->define_place(places_, where);
    there = {stream, where.tag, static_cast<std::uint16_t>(places_++), true, where.stream_id != 0 || may_ask};
  }

  /// Returns the id of a stream, which the runtime is asked for once. Returns 0 if it must not be asked, because the stream may have ended
  /// or captures.
  [[nodiscard]] std::uint64_t id_of(cudaStream_t stream, bool may_ask)
  {
    auto const known = std::find_if(ids_.begin(), ids_.end(), [&](auto const& each) { return each.first == stream; });
    if (known != ids_.end()) { return known->second; }
    if (!may_ask && !is_default_stream(stream)) { return 0; }
    auto const id = stream_identity(stream);
    if (id == 0) { return 0; }
    if (ids_.size() >= 1024) { ids_.clear(); }
    ids_.emplace_back(stream, id);
    return id;
  }

  /// Adds the call stack. Frames of an interpreted language replace those of its interpreter.
  void add_stack()
  {
    constexpr std::size_t own_frames = 3;  // capture_frames(), this function and its caller
    std::array<void*, own_frames + most_frames> frames{};
    auto const captured = capture_frames(frames.data(), frames.size());
    std::array<std::uint64_t, most_frames + most_interpreted_frames> addresses;
    std::size_t count{};
    auto const* const language = interpreter().load(std::memory_order_acquire);
    for (std::size_t i = own_frames; i < captured; ++i) {
      if (language != nullptr && is_code_of(*language, frames[i])) { break; }
      addresses[count++] = reinterpret_cast<std::uintptr_t>(frames[i]);
      name_frame(addresses[count - 1], [&] { return std::string_view{name_of_frame(frames[i])}; });
    }
    if (language != nullptr) {
      std::array<char, most_interpreted_frames*(longest_frame_name + 1)> names;
      auto const more  = std::min(language->names(names.data(), names.size()), most_interpreted_frames);
      char const* name = names.data();
      for (std::size_t i = 0; i < more; ++i) {
        std::string_view const text{name};
        addresses[count++] = number_of_frame(text);
        name_frame(addresses[count - 1], [&] { return text; });
        name += text.size() + 1;
      }
    }
    encoder_->add_stack(addresses.data(), count);
  }

  template <class Name>
  void name_frame(std::uint64_t address, Name name)
  {
    auto const named = std::lower_bound(frames_named_.begin(), frames_named_.end(), address);
    if (named != frames_named_.end() && *named == address) { return; }
    frames_named_.insert(named, address);
    encoder_->define_frame(address, name().substr(0, longest_frame_name));
  }

  void lose(std::uint64_t events) noexcept
  {
    lost_ += events;
    context_->lost.fetch_add(events, std::memory_order_relaxed);
  }

  static constexpr std::uint64_t never                 = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::size_t most_frames             = 16;
  static constexpr std::size_t most_interpreted_frames = 16;
  static constexpr std::size_t longest_frame_name      = 200;
  // The most bytes before an event: a tag's name, a place, a report, and a stack with the names of its frames.
  static constexpr std::size_t extra_bytes =
    1100 + block_encoder::longest_report +
    (most_frames + most_interpreted_frames) * (sizeof(std::uint64_t) + 12 + longest_frame_name);
  static_assert(extra_bytes + 512 <= block_encoder::smallest_capacity);

  static inline std::uint32_t const no_tag = 0;

  std::uint64_t thread_{};
  std::uint32_t const* tag_{&no_tag};  // the current tag of the thread
  std::atomic<std::uint64_t> const* lifetimes_{};
  std::uint64_t lifetimes_seen_{};
  clock_line line_;
  std::uint64_t flush_at_{0};                  // the time to write the block at; 0 without a block
  std::uint64_t allocations_to_stack_{never};  // how many allocations from now the next stack is due
  std::unique_ptr<block_encoder> encoder_;
  std::array<slot, std::size_t{1} << slot_bits> slots_{};
  unsigned places_{0};  // the places of this block
  trace_context* context_{};
  std::uint64_t lost_{0};                    // lost events that no written block reports
  std::uint32_t lost_told_{0};               // lost events that the header of this block reports
  std::vector<std::uint32_t> tags_named_;    // the tags with a name in this block
  std::vector<std::uint64_t> frames_named_;  // the frames with a name in this block; sorted
  std::vector<std::pair<cudaStream_t, std::uint64_t>> ids_;
};

/// A writer of a trace for any number of threads. Thread-safe.
///
/// Memory: a buffer for each thread that records and lives, and about 1 KiB for each thread of the largest number that lived at a time.
class trace_writer {
 public:
  /// Throws logic_error if neither the options nor the environment name a file, and std::runtime_error if it cannot be opened.
  RMM_COLD explicit trace_writer(mr::trace_options const& options)
    : context_{options, expanded(options.file, known_current_device()), known_current_device()},
      threads_{known_streams().new_number()}
  {}

  trace_writer(trace_writer const&)            = delete;
  trace_writer& operator=(trace_writer const&) = delete;

  RMM_COLD ~trace_writer() { flush(); }

  RMM_ALWAYS_INLINE void add(kind what, void const* ptr, std::size_t bytes, cudaStream_t stream) noexcept
  {
    auto* const mine = threads_.mine_at_hand();
    if (mine != nullptr && mine->lock.try_enter()) {
      mine->add(context_, what, ptr, bytes, stream);
      mine->lock.leave();
    } else {
      add_slowly(what, ptr, bytes, stream);
    }
  }

  /// Calls `allocate()`, and records the allocation, or the failure if it throws.
  template <class Allocate>
  RMM_ALWAYS_INLINE void* allocate_and_add(std::size_t bytes, cudaStream_t stream, Allocate allocate)
  {
    try {
      void* const ptr = allocate();
      add(kind::allocate, ptr, bytes, stream);
      return ptr;
    } catch (std::exception const& error) {
      add_failure(bytes, stream, error.what());
      throw;
    } catch (...) {
      add_failure(bytes, stream, {});
      throw;
    }
  }

  /// Writes the events of all threads from before the call.
  RMM_COLD void flush() noexcept
  {
    if (!context_.file.is_in_its_process()) { return; }  // a forked child has no threads of its parent to wait for
    detail::mutex_lock const guard{mutex_};
    threads_.for_each([](thread_trace& each) {
      each.lock.begin_keeping_out();
      each.is_kept_out = true;
    });
    process_barrier::pass_all_threads();
    threads_.for_each([](thread_trace& each) {
      if (!std::exchange(each.is_kept_out, false)) { return; }  // a new thread, without events from before the call
      each.lock.wait_until_left();
      each.write();
      each.lock.end_keeping_out();
    });
  }

  /// Returns the name of the first file.
  [[nodiscard]] std::string const& file() const noexcept { return context_.file.path(); }

  /// Returns the number of events that could not be written.
  [[nodiscard]] std::uint64_t lost() const noexcept { return context_.lost.load(std::memory_order_relaxed); }

 private:
  [[nodiscard]] static std::string expanded(std::string const& given, int device)
  {
    auto const pattern = given.empty() ? mr::trace_options::from_environment().file : given;
    RMM_EXPECTS(!pattern.empty(), "The trace has no file name: pass one, or set RMM_TRACE_FILE.");
    return expanded_file_name(pattern, device).first;
  }

  RMM_COLD void add_slowly(kind what, void const* ptr, std::size_t bytes, cudaStream_t stream) noexcept
  {
    with_buffer([&](thread_trace& buffer) { buffer.add(context_, what, ptr, bytes, stream); });
  }

  /// Records a failed allocation. `report` is the text of its exception.
  RMM_COLD void add_failure(std::size_t bytes, cudaStream_t stream, std::string_view report) noexcept
  {
    with_buffer([&](thread_trace& buffer) { buffer.add_failure(context_, bytes, stream, report); });
  }

  /// Calls `add` with the buffer of the thread. A thread that is kept out waits, and a thread that ends uses the shared buffer.
  template <class Add>
  void with_buffer(Add add) noexcept
  {
    auto* const mine = threads_.mine();
    if (mine != nullptr && mine->lock.try_enter()) {
      add(*mine);
      mine->lock.leave();
      return;
    }
    detail::mutex_lock const guard{mutex_};
    if (mine != nullptr) {  // no other thread keeps it out while this one holds the mutex
      add(*mine);
      return;
    }
    ending_.adopt();
    add(ending_);
    ending_.write();
  }

  trace_context context_;
  per_thread<thread_trace> threads_;
  detail::mutex mutex_;  // held while threads are kept out
  thread_trace ending_;  // the buffer of threads that end
  exit_action flush_at_exit_{[](void* self) noexcept { static_cast<trace_writer*>(self)->flush(); }, this};
};

}  // namespace trace
}  // namespace detail
}  // namespace RMM_NAMESPACE
