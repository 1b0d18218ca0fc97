// SPDX-License-Identifier: Apache-2.0

// The writer of traces, in all executions of the C++ memory model: threads record events, begin and end, while one
// thread writes the events of all of them. The files are real, and the reader of traces reads them. The compiler tells
// the explorer of each access to plain members (plain_accesses.cpp).

#include "modelled_std.hpp"

#include "biased_lock_orders.hpp"
#include "check_orders.hpp"

#include <tools/recorded/trace_reader.hpp>

#include <rmm/detail/cuda/stream_lifetimes.hpp>
#include <rmm/detail/trace/trace_writer.hpp>

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

/// Gives access to a private member.
template <class Name, typename Name::type Member>
struct open_member {
  friend typename Name::type member(Name) { return Member; }
};
struct name_of_threads {
  using type = rmm::detail::per_thread<rmm::detail::trace::thread_trace> rmm::detail::trace::trace_writer::*;
  friend type member(name_of_threads);
};
struct name_of_encoder {
  using type = std::unique_ptr<rmm::detail::trace::block_encoder> rmm::detail::trace::thread_trace::*;
  friend type member(name_of_encoder);
};
template struct open_member<name_of_threads, &rmm::detail::trace::trace_writer::threads_>;
template struct open_member<name_of_encoder, &rmm::detail::trace::thread_trace::encoder_>;

using rmm::detail::trace::kind;
using rmm::detail::trace::trace_writer;
using weak_memory::atomic;
using weak_memory::expect;
using weak_memory::keep_thread_local_objects;
using weak_memory::program;

/// A file that each run writes; in memory, if there is such a folder.
[[nodiscard]] std::string const& file_of_runs()
{
  struct folder_of_runs {
    std::string path =
      std::filesystem::exists("/dev/shm") ? "/dev/shm/rmm-XXXXXX" : ::testing::TempDir() + "rmm-XXXXXX";
    folder_of_runs()
    {
      if (::mkdtemp(path.data()) == nullptr) { throw std::runtime_error{"mkdtemp failed"}; }
    }
    ~folder_of_runs() { std::filesystem::remove_all(path); }
  };
  static folder_of_runs const folder;
  static std::string const name{folder.path + "/model.rmm"};
  return name;
}

[[nodiscard]] rmm::mr::trace_options options()
{
  rmm::mr::trace_options how;
  how.file           = file_of_runs();
  how.buffer_bytes   = std::size_t{16} << 10U;
  how.flush_interval = std::chrono::hours{24};  // no flush because of time
  return how;
}

/// A writer. Event n of thread t frees n bytes at address t.
struct traced {
  trace_writer writer;
  std::array<std::uint64_t, 4> events{};  // of each thread
  atomic<bool> flag{false};

  explicit traced(rmm::mr::trace_options const& how = options()) : writer{how} {}

  void record(std::size_t thread, cudaStream_t stream = cudaStreamLegacy, kind what = kind::free)
  {
    writer.add(what, reinterpret_cast<void*>(4096 * (thread + 1)), ++events[thread], stream);
  }

  /// The number of written events of each thread. Expects its events to be the first ones, in their order.
  [[nodiscard]] static std::map<std::size_t, std::uint64_t> written()
  {
    std::map<std::size_t, std::uint64_t> last;
    for (auto const& each : rmm::recorded::trace_reader::read(file_of_runs()).events) {
      auto& of_thread = last[static_cast<std::size_t>(each.address / 4096 - 1)];
      expect(each.bytes == of_thread + 1, "events are written once, in the order of their thread");
      of_thread = each.bytes;
    }
    return last;
  }

  /// The number of threads that have a buffer.
  [[nodiscard]] int buffers()
  {
    int count = 0;
    (writer.*member(name_of_threads{})).for_each([&](rmm::detail::trace::thread_trace& each) {
      count += each.*member(name_of_encoder{}) != nullptr ? 1 : 0;
    });
    return count;
  }

  void expect_all_written()
  {
    auto last = written();
    for (std::size_t i = 0; i != events.size(); ++i) { expect(last[i] == events[i], "all events are written"); }
    expect(writer.lost() == 0, "no event is lost");
  }
};

/// Makes all objects of the process that a run needs.
void warm_up()
{
  static bool const is_done = [] {
    traced first;
    first.record(0, cudaStreamLegacy, kind::allocate);
    return true;
  }();
  static_cast<void>(is_done);
}

[[nodiscard]] std::shared_ptr<traced> make_traced()
{
  warm_up();
  return std::make_shared<traced>();
}

/// Adds a thread that records events, and recorded one before the run.
void add_thread(program& made, std::shared_ptr<traced> const& state, std::size_t number, int events)
{
  made.thread(
    [=] {
      for (int i = 0; i != events; ++i) { state->record(number); }
      keep_thread_local_objects();
    },
    [=] { state->record(number); });
}

/// A flush while a thread records.
void flush_beside_event(program& made)
{
  auto const state = make_traced();
  add_thread(made, state, 0, 1);
  made.thread([=] { state->writer.flush(); });
  made.finally([=] {
    expect(state->written()[0] != 0, "what was recorded before the flush is written");
    state->writer.flush();
    state->expect_all_written();
  });
}

/// A flush after a thread announced that it recorded an event. It must also write the earlier events of another thread.
void flush_after_event(program& made)
{
  auto const state = make_traced();
  made.thread(
    [=] {
      state->record(0);
      state->flag.store(true, std::memory_order_release);
      keep_thread_local_objects();
    },
    [=] { state->record(0); });
  made.thread([=] {
    while (!state->flag.load(std::memory_order_acquire)) {}
    state->writer.flush();
    state->expect_all_written();
  });
}

/// A thread ends during a flush: one of the two writes its events, and its buffer is freed.
void end_beside_flush(program& made)
{
  auto const state = make_traced();
  made.thread([] {}, [=] { state->record(0); });
  made.thread([=] { state->writer.flush(); });
  made.finally([=] {
    state->expect_all_written();
    expect(state->buffers() == 0, "the buffer of a thread that has ended is freed");
  });
}

/// A thread records its first event while another one ends; it may get the other's slot.
void begin_beside_end(program& made)
{
  auto const state = make_traced();
  made.thread([] {}, [=] { state->record(0); });
  made.thread([=] {
    state->record(1);
    keep_thread_local_objects();
  });
  made.finally([=] {
    state->writer.flush();
    state->expect_all_written();
    expect(state->buffers() == 1, "a thread that lives keeps its buffer");
  });
}

/// Threads that write each event immediately.
void write_at_once(program& made)
{
  warm_up();
  auto how           = options();
  how.flush_interval = std::chrono::milliseconds{0};
  auto const state   = std::make_shared<traced>(how);
  for (std::size_t i = 0; i != 2; ++i) { add_thread(made, state, i, 1); }
  made.finally([=] { state->expect_all_written(); });
}

/// A thread records its first event during a flush, which may find the new buffer.
void begin_beside_flush(program& made)
{
  auto const state = make_traced();
  made.thread([=] {
    state->record(0);
    keep_thread_local_objects();
  });
  made.thread([=] { state->writer.flush(); });
  made.finally([=] {
    state->writer.flush();
    state->expect_all_written();
  });
}

/// Threads record an event after they gave their buffers back, during a flush.
void record_at_end(program& made)
{
  struct at_end {
    traced* state;
    std::size_t number;
    ~at_end() { state->record(number); }
  };
  auto const state = make_traced();
  for (std::size_t i = 0; i != 2; ++i) {
    made.thread([] {},
                [=] {
                  thread_local at_end const last{state.get(), i};
                  static_cast<void>(last);
                  state->record(i);
                });
  }
  made.finally([=] { state->expect_all_written(); });
}

/// The handle of a destroyed stream is reused for a new one. A thread that receives it records the new stream.
void reuse_stream(program& made)
{
  struct state_type : traced {
    cudaStream_t stream{};
    cudaStream_t first{};
    state_type() { make(); }
    ~state_type() { cudaStreamDestroy(stream); }
    void make()
    {
      cudaStreamCreate(&stream);
      rmm::detail::stream_begins(stream);
    }
  };
  warm_up();
  auto const state = std::make_shared<state_type>();
  made.thread([=] {
    state->first = state->stream;
    rmm::detail::stream_is_about_to_end(state->stream);
    cudaStreamDestroy(state->stream);
    state->make();
    state->flag.store(true, std::memory_order_release);
  });
  made.thread(
    [=] {
      while (!state->flag.load(std::memory_order_acquire)) {}
      expect(state->stream == state->first, "the runtime uses the handle again");
      state->record(0, state->stream, kind::allocate);
      keep_thread_local_objects();
    },
    [=] { state->record(0, state->stream, kind::allocate); });
  made.finally([=] {
    state->writer.flush();
    state->expect_all_written();
    auto const trace = rmm::recorded::trace_reader::read(file_of_runs());
    auto const& last = trace.places[trace.events.back().place];
    unsigned long long id{};
    cudaStreamGetId(state->stream, &id);
    expect(trace.places[trace.events.front().place].stream == last.stream, "both events have the same handle");
    expect(last.stream_id == id + 1, "the event is on the stream that the handle names now");
  });
}

/// The second thread that records: threads that receive something from it must read times in order.
void second_thread(program& made, bool has_first)
{
  struct state_type {
    rmm::detail::trace::trace_context context{options(), file_of_runs(), 0};
    std::array<rmm::detail::trace::thread_trace, 2> threads;
    atomic<bool> flag{false};

    void record(std::size_t number)
    {
      threads[number].adopt();
      threads[number].add(context, kind::free, this, 1, cudaStreamLegacy);
    }
  };
  warm_up();
  auto const state = std::make_shared<state_type>();
  if (has_first) { state->record(0); }
  made.thread([=] {
    if (!has_first) { state->record(0); }
    if (!has_first || !state->flag.load(std::memory_order_acquire)) { return; }
    expect(state->context.has_threads.load(std::memory_order_relaxed), "the thread knows that it is not alone");
  });
  made.thread([=] {
    state->record(1);
    state->flag.store(true, std::memory_order_release);
  });
  made.finally([=] { expect(state->context.has_threads.load(), "there have been two threads"); });
}

weak_memory::checked_part trace_part(std::string file)
{
  weak_memory::checked_part part;
  part.file     = std::move(file);
  part.programs = {flush_after_event,
                   end_beside_flush,
                   begin_beside_end,
                   write_at_once,
                   begin_beside_flush,
                   record_at_end,
                   reuse_stream,
                   [](program& made) { second_thread(made, false); },
                   [](program& made) { second_thread(made, true); },
                   flush_beside_event};
  return part;
}

TEST(TraceModel, EachEventIsWrittenOnceAndBuffersAreFreed) { weak_memory::expect_right(trace_part({})); }

TEST(TraceModel, NeedsTheOrdersOfTheLock)
{
  auto const part = trace_part("include/rmm/detail/base/biased_lock.hpp");
  EXPECT_EQ(weak_memory::unnoticed_weakenings(part, orders_not_needed_beside_barrier()), std::set<std::string>{});
}

TEST(TraceModel, NeedsTheBarrierInAllThreads)
{
  rmm::detail::membarrier_has_effect = false;
  EXPECT_NE(weak_memory::explore(flush_beside_event).error, "");
  rmm::detail::membarrier_has_effect = true;
}

// --- the clock ---

/// A machine whose time advances with each reading. All readings have one order, which agrees with happens-before and
/// orders nothing else: time_counter promises this. A reading that is out of order may find an older time.
struct model_clocks {
  static constexpr std::uint64_t ns_a_look = 30'000;

  atomic<std::uint64_t>* looks;
  std::uint64_t const* wrong_ns;  // how far the system's clock is ahead

  [[nodiscard]] static bool has_counter() noexcept { return true; }
  [[nodiscard]] std::uint64_t ticks() const noexcept
  {
    return ns_a_look * (1 + looks->fetch_add(1, std::memory_order_relaxed));
  }
  [[nodiscard]] std::uint64_t about_ticks() const noexcept
  {
    return ns_a_look * looks->load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t ns() const noexcept { return ticks() + *wrong_ns; }
};

struct clocked {
  using clock_type = rmm::detail::trace::basic_trace_clock<model_clocks>;

  atomic<std::uint64_t> looks{0};
  std::uint64_t wrong_ns{0};
  clock_type clock{0, {&looks, &wrong_ns}};
  atomic<std::uint64_t> told{0};

  /// Two threads ask for the time. One tells the other its time, and the other must not get an earlier one.
  static void ask_in_two_threads(program& made,
                                 std::shared_ptr<clocked> const& state,
                                 rmm::detail::trace::clock_line const& before = {})
  {
    for (int i = 0; i != 2; ++i) {
      made.thread([=] {
        auto line          = before;
        auto const earlier = state->told.load(std::memory_order_acquire);
        auto const now     = state->clock.now(line, true);
        expect(now >= earlier, "times do not go back");
        expect(state->clock.now(line, true) >= now, "times do not go back in a thread");
        state->told.store(now, std::memory_order_release);
      });
    }
  }

  /// A line that ends after some readings.
  [[nodiscard]] rmm::detail::trace::clock_line line_that_ends()
  {
    rmm::detail::trace::clock_line line;
    while (line.length == 0) { static_cast<void>(clock.now(line, true)); }
    model_clocks const clocks{&looks, &wrong_ns};
    while (clocks.ticks() - line.begin + 3 * model_clocks::ns_a_look < line.length) {}
    return line;
  }
};

/// Threads that measure the rate and begin a line.
void begin_line(program& made) { clocked::ask_in_two_threads(made, std::make_shared<clocked>()); }

/// A line ends, which may have been ahead of the clock.
void end_line(program& made, std::uint64_t ahead_ns)
{
  auto const state = std::make_shared<clocked>();
  auto const line  = state->line_that_ends();
  state->wrong_ns -= ahead_ns;
  clocked::ask_in_two_threads(made, state, line);
}

/// The counter and the clock contradict each other until the counter is abandoned.
void give_counter_up(program& made)
{
  auto const contradict = [](clocked& to) {
    rmm::detail::trace::clock_line line;
    to.wrong_ns = 3 * to.wrong_ns / 2 + 1'000'000;
    static_cast<void>(to.clock.now(line, true));
  };
  static int const most_contradictions = [&] {
    clocked tried;
    int count = 0;
    for (; tried.clock.counts(); ++count) { contradict(tried); }
    return count;
  }();
  auto const state = std::make_shared<clocked>();
  for (int i = 1; i < most_contradictions; ++i) { contradict(*state); }
  state->wrong_ns *= 2;
  clocked::ask_in_two_threads(made, state);
}

weak_memory::checked_part clock_part()
{
  weak_memory::checked_part part;
  part.file     = "include/rmm/detail/trace/trace_clock.hpp";
  part.programs = {begin_line,
                   [](program& made) { end_line(made, 0); },
                   [](program& made) { end_line(made, 200'000); },
                   give_counter_up};
  return part;
}

TEST(TraceClockModel, TimesDoNotGoBack) { weak_memory::expect_right(clock_part()); }

TEST(TraceClockModel, NeedsItsOrders)
{
  EXPECT_EQ(weak_memory::unnoticed_weakenings(clock_part()), std::set<std::string>{});
}

}  // namespace
