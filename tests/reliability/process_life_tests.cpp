// SPDX-License-Identifier: Apache-2.0
//
// Processes that end, fork, and load and unload libraries while memory is in use. Each kind of process is started many
// times. Each has to exit with status 0. Processes whose threads stop before the end also have to give all memory back.

#include "../support/sanitizers.hpp"

#include <rmm/capture_scope.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/process_wide.hpp>
#include <rmm/detail/plain_logger.hpp>
#include <rmm/detail/stack_trace.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/aligned_resource_adaptor.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/guard_resource_adaptor.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>
#include <rmm/mr/memory_reservation.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/reservation_queue.hpp>
#include <rmm/mr/scrub_resource_adaptor.hpp>
#include <rmm/mr/spill_resource_adaptor.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/trace_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>
#include <rmm/tag_scope.hpp>

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

RMM_PROCESS_WIDE_ANCHOR(rmm_test_anchor_of_process_life, 1004);

namespace {

using pool = rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;

// --- the lives of processes

unsigned seed{1};  // of this process

/// Threads that allocate and free until the process ends, and are never joined.
void start_threads(rmm::mr::device_memory_resource& mr)
{
  static std::atomic<int> running{0};
  for (unsigned i = 0; i < 3; ++i) {
    std::thread{[&mr, i] {
      std::mt19937 random{seed * 10 + i};
      ++running;
      for (;;) {
        auto const bytes = 256 + random() % 20'000;
        void* const ptr  = mr.allocate(bytes, rmm::cuda_stream_per_thread);
        mr.deallocate(ptr, bytes, rmm::cuda_stream_per_thread);
      }
    }}.detach();
  }
  while (running < 3) { std::this_thread::yield(); }
  auto const until = std::chrono::steady_clock::now() + std::chrono::microseconds{seed * 37 % 1000};
  while (std::chrono::steady_clock::now() < until) { std::this_thread::yield(); }
}

/// A pool that is never destroyed, because threads use it beyond the end of main().
template <class Pool, class... Args>
Pool& immortal(Args... args)
{
  return *new Pool{args...};
}

rmm::mr::cuda_memory_resource cuda;

/// Ends a forked child by exit(), then this process. Aborts unless the child exits with 0 and writes `expected` to
/// standard error.
template <class InChild>
[[noreturn]] void fork_and_expect(std::string const& expected, InChild in_child)
{
  int ends[2];
  if (pipe(ends) != 0) { std::abort(); }
  auto const child = fork();
  if (child == 0) {
    alarm(60);  // instead of hanging
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    in_child();
    std::exit(0);  // destroys static objects of its parent
  }
  close(ends[1]);
  std::string written;
  char text[256];
  for (ssize_t bytes{}; (bytes = read(ends[0], text, sizeof text)) > 0;) {
    written.append(text, static_cast<std::size_t>(bytes));
  }
  int status       = 1;
  bool const ended = child > 0 && waitpid(child, &status, 0) == child;
  if (!ended || status != 0 || written != expected) {
    std::fprintf(stderr, "the child has status %d and wrote: %s\n", status, written.c_str());
    std::abort();
  }
  std::_Exit(0);  // without this process's own reports
}

using tracked = rmm::mr::tracking_resource_adaptor<rmm::mr::device_memory_resource>;

/// Starts threads that make and destroy adaptors with leak reports until the process ends.
void start_threads_with_reports()
{
  static std::atomic<int> running{0};
  for (int i = 0; i < 2; ++i) {
    std::thread{[] {
      ++running;
      for (;;) { tracked const mr{&cuda, false, rmm::mr::leak_report::at_end}; }
    }}.detach();
  }
  while (running < 2) { std::this_thread::yield(); }
}

/// Forks while threads use `mr`, of which the child ends a buffer at its end. Requires that `mr` is static.
template <class Resource>
[[noreturn]] void fork_while_threads_use(Resource& mr)
{
  static rmm::device_buffer const buffer{1000, rmm::cuda_stream_legacy, mr};
  start_threads(mr);
  fork_and_expect("", [] {});
}

/// Makes a resource without CUDA.
rmm::mr::callback_memory_resource memory_of_host()
{
  return {[](std::size_t bytes, rmm::cuda_stream_view, void*) { return std::malloc(bytes); },
          [](void* ptr, std::size_t, rmm::cuda_stream_view, void*) { std::free(ptr); }};
}

/// Returns the bytes that malloc() has given out; 0 if the C library does not tell.
std::size_t bytes_in_use()
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  return mallinfo2().uordblks;
#else
  return 0;
#endif
}

/// A pool below static adaptors.
pool& pool_below()
{
  static pool mr{&cuda, 1U << 20U};
  return mr;
}

using module_use = void(std::size_t);

void* open_module() { return dlopen(RMM_PROCESS_LIFE_MODULE, RTLD_NOW | RTLD_LOCAL); }

module_use* use_of(void* library) { return reinterpret_cast<module_use*>(dlsym(library, "use_memory")); }

std::map<std::string, void (*)()> const& lives()
{
  static std::map<std::string, void (*)()> const all{
    {"exits_while_threads_allocate",
     [] {
       start_threads(immortal<pool>(&cuda, 1U << 20U));
       std::exit(0);
     }},
    {"exits_while_threads_use_an_elastic_pool",
     [] {
       start_threads(immortal<rmm::mr::elastic_pool_memory_resource>());
       std::exit(0);
     }},
    {"exits_quickly_while_threads_allocate",
     [] {
       start_threads(immortal<pool>(&cuda, 1U << 20U));
       std::quick_exit(0);
     }},
    {"has_a_static_pool_made_before_the_registry_is_used",
     [] {
       static pool mr{&cuda, 1U << 20U};
       rmm::mr::set_current_device_resource(&mr);
       static rmm::cuda_stream const stream;
       static rmm::device_buffer const buffer{1000, stream};
       std::exit(0);
     }},
    {"has_a_static_pool_made_after_the_registry_was_used",
     [] {
       static_cast<void>(rmm::mr::get_current_device_resource());
       static rmm::cuda_stream const stream;
       static rmm::device_buffer const first{1000, stream};
       static rmm::mr::elastic_pool_memory_resource mr;
       rmm::mr::set_current_device_resource(&mr);
       static rmm::device_buffer const second{1000, stream};
       std::exit(0);
     }},
    {"has_a_stream_that_outlives_the_pool",
     [] {
       static rmm::cuda_stream const stream;
       static pool mr{&cuda, 1U << 20U};
       static rmm::device_buffer const buffer{1000, stream, &mr};
       std::thread{[] { rmm::device_buffer const own{5000, rmm::cuda_stream_per_thread, &mr}; }}.join();
       std::exit(0);
     }},
    {"opens_and_closes_a_library_that_uses_rmm",
     [] {
       pool mr{&cuda, 1U << 20U};
       rmm::mr::set_current_device_resource(&mr);
       for (int i = 0; i < 5; ++i) {
         auto* const library = open_module();
         if (library == nullptr) { std::abort(); }
         use_of(library)(500);
         std::thread{use_of(library), 700}.join();
         if (dlclose(library) != 0) { std::abort(); }
       }
       mr.deallocate(mr.allocate(1000), 1000);
       rmm::mr::set_current_device_resource(nullptr);
     }},
    {"closes_a_library_before_the_threads_that_used_it_end",
     [] {
       auto* const library = open_module();
       if (library == nullptr) { std::abort(); }
       std::atomic<int> used{0};
       std::atomic<bool> closed{false};
       std::vector<std::thread> threads;
       for (std::size_t i = 0; i < 3; ++i) {
         threads.emplace_back([&, i] {
           use_of(library)(300 + i);
           ++used;
           while (!closed) { std::this_thread::yield(); }
         });
       }
       while (used < 3) { std::this_thread::yield(); }
       if (dlclose(library) != 0) { std::abort(); }
       closed = true;
       for (auto& each : threads) { each.join(); }
     }},
    {"catches_what_a_library_throws",
     [] {
       auto* const library = open_module();
       if (library == nullptr) { std::abort(); }
       int caught = 0;
       try {
         reinterpret_cast<void (*)()>(dlsym(library, "ask_for_too_much"))();
       } catch (rmm::out_of_memory const&) {
         ++caught;
       }
       if (caught != 1) { std::abort(); }
       std::exit(0);
     }},
    {"forks_while_threads_use_a_pool_with_a_leak_report",
     [] {
       static pool own{&cuda, 1U << 20U};
       static tracked mr{&own, false, rmm::mr::leak_report::at_end};
       static rmm::device_buffer const buffer{1000, rmm::cuda_stream_legacy, mr};
       start_threads(mr);
       fork_and_expect("", [] {});
     }},
    {"forks_while_threads_use_tags_and_parts",
     [] {
       static rmm::mr::elastic_pool_memory_resource own;
       static tracked mr{&own, true, rmm::mr::leak_report::at_end};
       static rmm::tag const part{"part"};
       own.track_tags();
       own.set_pausable(part);
       rmm::tag_scope const scope{part};
       static rmm::device_buffer const buffer{1000, rmm::cuda_stream_legacy, mr};
       start_threads(mr);
       fork_and_expect("", [] {});
     }},
    {"forks_while_threads_begin_and_end_streams",
     [] {
       static rmm::cuda_stream const stream;
       static pool mr{&cuda, 1U << 20U};
       static rmm::device_buffer const buffer{1000, stream, mr};
       static std::atomic<int> running{0};
       for (int i = 0; i < 2; ++i) {
         std::thread{[] {
           for (++running;; ++running) {
             std::thread{[] {
               rmm::cuda_stream const short_lived;
               rmm::device_buffer const own{1000, short_lived, mr};
             }}.join();
           }
         }}.detach();
       }
       while (running < 20) { std::this_thread::yield(); }
       fork_and_expect("", [] {});
     }},
    {"forks_while_threads_make_leak_reports",
     [] {
       static tracked mr{&cuda, false, rmm::mr::leak_report::at_end};
       static rmm::device_buffer const buffer{1000, rmm::cuda_stream_legacy, mr};
       start_threads_with_reports();
       fork_and_expect("", [] {});
     }},
    {"forks_while_threads_make_leak_reports_and_the_child_has_one",
     [] {
       static tracked mr{&cuda, false, rmm::mr::leak_report::at_end};
       static_cast<void>(mr.allocate(1000));
       start_threads_with_reports();
       fork_and_expect("RMM: 7 B in 1 allocations have not been freed\n", [] {
         static auto host = memory_of_host();
         static tracked mine{&host, false, rmm::mr::leak_report::at_end};
         static void* leaked = mine.allocate(7);
         static_cast<void>(leaked);
       });
     }},
    {"forks_while_threads_use_a_thread_safe_adaptor",
     [] {
       static rmm::mr::thread_safe_resource_adaptor mr{&pool_below()};
       fork_while_threads_use(mr);
     }},
    {"forks_while_threads_use_an_aligned_adaptor",
     [] {
       static rmm::mr::aligned_resource_adaptor mr{&pool_below(), 4096};
       fork_while_threads_use(mr);
     }},
    {"forks_while_threads_use_a_guard",
     [] {
       rmm::mr::guard_options options;
       options.capture_stacks = false;
       static rmm::mr::guard_resource_adaptor mr{&pool_below(), options};
       fork_while_threads_use(mr);
     }},
    {"forks_while_threads_write_a_log",
     [] {
       static std::ofstream nowhere{"/dev/null"};
       static rmm::mr::logging_resource_adaptor mr{&pool_below(), nowhere};
       fork_while_threads_use(mr);
     }},
    {"forks_while_threads_write_a_trace",
     [] {
       rmm::mr::trace_options options;
       options.file = ::testing::TempDir() + "process_life_%p.trace";
       static rmm::mr::trace_resource_adaptor mr{&pool_below(), options};
       std::remove(mr.get_file_name().c_str());
       std::thread{[] {
         for (;;) { mr.flush(); }
       }}.detach();
       fork_while_threads_use(mr);
     }},
    {"forks_and_ends_pools_in_the_child",
     [] {
       auto& own      = immortal<pool>(&cuda, 1U << 20U);
       auto& elastic  = immortal<rmm::mr::elastic_pool_memory_resource>();
       auto& reserved = *new auto{own.reserve(1000)};
       for (rmm::mr::device_memory_resource* const each :
            std::initializer_list<rmm::mr::device_memory_resource*>{&own, &elastic, &reserved.resource()}) {
         each->deallocate(each->allocate(1000), 1000);
       }
       static auto const end = [&own, &elastic, &reserved] {
         auto const before = bytes_in_use();
         std::destroy_at(&reserved);
         std::destroy_at(&elastic);
         std::destroy_at(&own);
         if (bytes_in_use() < before) { std::abort(); }  // a thread of the parent may have been changing what was freed
       };
       fork_and_expect("", end);
     }},
    {"forks_while_a_thread_keeps_what_it_cannot_scrub",
     [] {
       static auto host = memory_of_host();
       static rmm::mr::scrub_resource_adaptor mr{&host};
       static rmm::device_buffer const buffer{1000, rmm::cuda_stream_legacy, mr};
       static std::atomic<bool> running{false};
       std::thread{[] {
         cudaStream_t capturing{};
         cudaStreamCreate(&capturing);
         cudaStreamBeginCapture(capturing, cudaStreamCaptureModeRelaxed);  // blocks the legacy stream
         for (;; running = true) { mr.deallocate(mr.allocate(256), 256); }
       }}.detach();
       while (!running) { std::this_thread::yield(); }
       fork_and_expect("", [] {});
     }},
    {"forks_while_threads_read_statistics",
     [] {
       static rmm::mr::statistics_resource_adaptor mr{&pool_below()};
       std::thread{[] {
         for (;;) { static_cast<void>(mr.get_bytes_counter()); }
       }}.detach();
       static rmm::device_buffer const buffer{1000, rmm::cuda_stream_legacy, mr};
       start_threads(mr);
       fork_and_expect("", [] {
         static_cast<void>(mr.push_counters());
         if (mr.get_bytes_counter().value != 0 || mr.pop_counters().second.total != 0) { std::abort(); }
       });
     }},
    {"forks_while_threads_make_the_first_statistics",
     [] {
       static auto const count = [] {
         auto host = memory_of_host();
         rmm::mr::statistics_resource_adaptor mr{&host};
         mr.deallocate(mr.allocate(1000), 1000);
       };
       static std::atomic<bool> running{false};
       std::thread{[] {
         running = true;
         count();
         for (;;) { pause(); }
       }}.detach();
       while (!running) { std::this_thread::yield(); }
       std::this_thread::sleep_for(std::chrono::microseconds{seed * 37 % 1000});
       fork_and_expect("", count);
     }},
    {"forks_while_threads_pass_watermarks",
     [] {
       rmm::mr::spill_options options;
       options.maximum_bytes = 1U << 20U;
       options.watermarks.push_back({0.0, 0.0, [](std::size_t) {}});  // raised by the buffer, lowered by its end
       static rmm::mr::spill_resource_adaptor mr{&pool_below(), nullptr, options};
       static rmm::device_buffer const buffer{1000, rmm::cuda_stream_legacy, mr};
       static std::atomic<int> running{0};
       for (int i = 0; i < 2; ++i) {
         std::thread{[] {
           for (++running;;) { static_cast<void>(mr.figures()); }
         }}.detach();
       }
       while (running < 2) { std::this_thread::yield(); }
       fork_and_expect("", [] {});
     }},
    {"forks_while_threads_use_a_reservation",
     [] {
       static auto task = pool_below().reserve(512U << 10U);
       fork_while_threads_use(task.resource());
     }},
    {"forks_while_threads_wait_for_reservations",
     [] {
       static pool mr{&cuda, 1U << 20U, 1U << 20U};
       static rmm::mr::reservation_queue queue{mr};
       std::thread{[] {
         auto const everything = mr.reserve(1U << 20U);
         static_cast<void>(queue.reserve_or_wait(1000));
       }}.detach();
       while (queue.waiting() == 0) { std::this_thread::yield(); }
       fork_and_expect("", [] {});
     }},
    {"forks_while_threads_end_graph_memory",
     [] {
       static rmm::graph_memory const memory;
       static rmm::capture_scope const scope{rmm::cuda_stream_legacy, memory};
       static std::atomic<int> running{0};
       for (int i = 0; i < 2; ++i) {
         std::thread{[] {
           for (++running;;) { rmm::graph_memory const short_lived; }
         }}.detach();
       }
       while (running < 2) { std::this_thread::yield(); }
       fork_and_expect("", [] {});
     }},
    {"forks_while_threads_set_resources",
     [] {
       rmm::detail::register_process_exit_hook();  // else a thread may hold the lock of atexit(), and the child hangs
       static rmm::mr::cuda_memory_resource other;
       static rmm::mr::device_memory_resource* const choices[]{&cuda, &other};
       static std::atomic<int> running{0};
       for (int i = 0; i < 2; ++i) {
         std::thread{[i] {
           rmm::cuda_device_id const device{i};
           for (++running;;) {
             for (auto* const each : choices) {
               rmm::mr::set_per_device_resource(device, each);
               rmm::mr::set_per_device_resource_ref(device, rmm::device_async_resource_ref{*each});
             }
           }
         }}.detach();
       }
       while (running < 2) { std::this_thread::yield(); }
       fork_and_expect("", [] {
         static auto host                      = memory_of_host();
         rmm::mr::device_memory_resource& mine = host;
         for (int i = 0; i < 100; ++i) {
           rmm::cuda_device_id const device{i};
           rmm::mr::set_per_device_resource_ref(device, rmm::device_async_resource_ref{other});
           rmm::mr::set_per_device_resource(device, rmm::device_async_resource_ref{cuda});
           static_cast<void>(rmm::mr::set_per_device_resource(device, &mine));
           bool const is_set = rmm::mr::get_per_device_resource(device) == &mine &&
                               rmm::mr::get_per_device_resource_ref(device) == rmm::device_async_resource_ref{mine};
           if (!is_set || rmm::mr::reset_per_device_resource(device) != &mine) { std::abort(); }
         }
       });
     }},
    {"forks_while_threads_look_up_frames",
     [] {
       static std::atomic<std::uintptr_t> looked_up{1};
       for (int i = 0; i < 2; ++i) {
         std::thread{[] {
           for (;;) { static_cast<void>(rmm::detail::name_of_frame(reinterpret_cast<void*>(looked_up++))); }
         }}.detach();
       }
       while (looked_up < 1000) { std::this_thread::yield(); }
       fork_and_expect("", [] {
         std::ostringstream text;
         text << rmm::detail::stack_trace{};
         if (text.str().empty()) { std::abort(); }
       });
     }},
    {"forks_while_threads_make_tags",
     [] {
       static rmm::tag const early{"early"};
       static std::atomic<int> made{0};
       for (int i = 0; i < 2; ++i) {
         std::thread{[] {
           for (;;) { static_cast<void>(rmm::tag{"many " + std::to_string(++made % 20'000)}); }
         }}.detach();
       }
       while (made < 500) { std::this_thread::yield(); }
       fork_and_expect("", [] {
         rmm::tag_scope const scope{"of the child"};
         bool const is_known = rmm::tag{"early"} == early && rmm::tag{"many 100"} == rmm::tag{"many 100"};
         if (!is_known ||
             std::string{"early of the child"} != early.name() + std::string{" "} + rmm::tag::current().name()) {
           std::abort();
         }
       });
     }},
    {"forks_while_threads_announce_captures",
     [] {
       static std::atomic<int> running{0};
       for (int i = 0; i < 2; ++i) {
         std::thread{[] {
           for (++running;;) { rmm::capture_scope const scope{rmm::cuda_stream_legacy}; }
         }}.detach();
       }
       while (running < 2) { std::this_thread::yield(); }
       fork_and_expect("", [] { rmm::capture_scope const scope{rmm::cuda_stream_legacy}; });
     }},
    {"forks_while_threads_search_for_process_wide_objects",
     [] {
       static auto const search = [] {
         return rmm::detail::find_home(rmm_test_anchor_of_process_life, 1004).home.anchor;
       };
       static std::atomic<int> running{0};
       for (int i = 0; i < 2; ++i) {
         std::thread{[] {
           for (++running;;) { static_cast<void>(search()); }
         }}.detach();
       }
       while (running < 2) { std::this_thread::yield(); }
       fork_and_expect("", [] {
         if (search() != &rmm_test_anchor_of_process_life) { std::abort(); }
       });
     }},
    {"forks_while_threads_log",
     [] {
       namespace plain = rmm::detail::plain_logger;
       static std::ostream nowhere{nullptr};
       static plain::logger log{"log",
                                {std::make_shared<plain::ostream_sink_mt>(nowhere),
                                 std::make_shared<plain::callback_sink_mt>([](int, char const*) {})}};
       static std::atomic<int> running{0};
       for (int i = 0; i < 2; ++i) {
         std::thread{[] {
           for (++running;;) { log.info("a line"); }
         }}.detach();
       }
       while (running < 2) { std::this_thread::yield(); }
       fork_and_expect("of the child\n", [] {
         log.set_pattern("%v");
         log.sinks().push_back(std::make_shared<plain::stderr_sink_mt>());
         log.info("of the child");
       });
     }},
    {"forks_while_threads_allocate",
     [] {
       auto& mr = immortal<pool>(&cuda, 1U << 20U);
       static pool own{&cuda, 1U << 20U};
       static rmm::device_buffer const buffer{1000, rmm::cuda_stream_legacy, &own};
       static rmm::mr::pinned_pool_memory_resource pinned{2U << 20U};
       start_threads(mr);
       auto const child = fork();
       if (child == 0) {
         alarm(60);     // instead of hanging
         std::exit(0);  // destroys static objects of its parent
       }
       int status = 1;
       if (child < 0 || waitpid(child, &status, 0) != child || status != 0) { std::abort(); }
       std::exit(0);
     }},
  };
  return all;
}

// --- starting them

/// Starts this program again with one of the lives. Returns its status in the form of waitpid().
int live(std::string const& name, unsigned with_seed)
{
  auto const life          = "RMM_TEST_LIFE=" + name;
  auto const seed_of_child = "RMM_TEST_SEED=" + std::to_string(with_seed);
  std::vector<char*> environment;
  for (char** each = environ; *each != nullptr; ++each) {
    if (std::string{*each}.rfind("GTEST_", 0) != 0) { environment.push_back(*each); }
  }
  environment.push_back(const_cast<char*>("CUDASIM_QUIET=1"));  // else each call of a forked child prints a line
  if (name.find("while_threads") == std::string::npos) {        // in the others, pools are never destroyed
    environment.push_back(const_cast<char*>("CUDASIM_REPORT=/dev/null"));  // a leak or a violation gives status 66
  }
  environment.push_back(const_cast<char*>(life.c_str()));
  environment.push_back(const_cast<char*>(seed_of_child.c_str()));
  environment.push_back(nullptr);
  char* const arguments[]{
    const_cast<char*>("process_life"), const_cast<char*>("--gtest_filter=Process.IsOne"), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child{};
  int status = -1;
  if (posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments, environment.data()) == 0) {
    waitpid(child, &status, 0);
  }
  posix_spawn_file_actions_destroy(&actions);
  return status;
}

/// The body of a child process. Skipped in the process that starts them.
TEST(Process, IsOne)
{
  auto const* const life = std::getenv("RMM_TEST_LIFE");
  if (life == nullptr) { GTEST_SKIP() << "only in processes that the other tests start"; }
  if (auto const* const given = std::getenv("RMM_TEST_SEED")) { seed = static_cast<unsigned>(std::atoi(given)); }
  alarm(100);  // instead of hanging
  lives().at(life)();
}

TEST(Process, ThatDoesNotEndWellIsNoticed) { EXPECT_NE(live("no such life", 1), 0); }

struct ProcessLife : ::testing::TestWithParam<std::string> {};

TEST_P(ProcessLife, EndsWell)
{
  if (RMM_TEST_UNDER_SANITIZER && GetParam().rfind("forks_while_", 0) == 0) {
    GTEST_SKIP() << "a forked child waits for locks of the sanitizer that threads of its parent held";
  }
  constexpr unsigned usual = RMM_TEST_UNDER_SANITIZER ? 5 : 200;
  auto const* const given  = std::getenv("RMM_TEST_PROCESSES");
  auto const processes     = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : usual;
  for (unsigned i = 1; i <= processes && !HasFailure(); ++i) {
    EXPECT_EQ(live(GetParam(), i), 0) << "RMM_TEST_LIFE=" << GetParam() << " RMM_TEST_SEED=" << i;
  }
}

std::vector<std::string> names_of_lives()
{
  std::vector<std::string> names;
  for (auto const& each : lives()) { names.push_back(each.first); }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, ProcessLife, ::testing::ValuesIn(names_of_lives()), [](auto const& test) {
  return test.param;
});

}  // namespace
