// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// The state of the simulated machine, and the one way into it.
///
/// The simulator is a monitor: one mutex guards all state, and every call of the CUDA API holds it, except calls that
/// only use the calling thread's own state. Work of streams (copies, kernels, host functions) runs without it.
///
/// The world is leaked on purpose: threads of the program may call us until the process is gone.

#include "callers.hpp"
#include "ordering.hpp"
#include "violation_list.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace cudasim {

struct stream;
struct capture;
struct memory_state;  // memory.cpp

constexpr int most_devices        = 256;
constexpr std::size_t most_memory = std::size_t{64} << 40U;  ///< of a device: half of the available addresses

/// A point in the work of a stream: everything up to operation `sequence`.
struct point {
  std::shared_ptr<stream> of;
  std::uint64_t sequence{0};
  std::shared_ptr<std::uint64_t const> end_ns;  ///< receives the time of arrival
  std::uint64_t known_ns{unknown_ns};           ///< the time, if the point was already reached when it was made
  static constexpr std::uint64_t unknown_ns = ~std::uint64_t{0};
  [[nodiscard]] bool reached() const noexcept;
  [[nodiscard]] std::uint64_t time_ns() const noexcept;  ///< requires reached()
};

/// Bytes an operation touches, for the checker.
struct access {
  std::uintptr_t begin;
  std::size_t bytes;
  bool write;
};

/// One piece of work of a stream.
struct operation {
  char const* what{""};
  void const* call_site{nullptr};
  std::function<void()> run;                       ///< called without the lock; may be empty
  std::function<void(std::uint64_t end_ns)> done;  ///< called with the lock when the work is complete; may be empty
  std::vector<access> accesses;
  std::uint64_t duration_ns{0};
  bool host_function{false};              ///< one at a time runs on a device; the host learns what it knows
  std::vector<point> after;               ///< submit() adds points for the default stream's rules
  vector_clock clock;                     ///< what `after` covers; submit() adds the rest
  std::shared_ptr<std::uint64_t> end_ns;  ///< receives the end time, once it may be asked for
  // set by submit()
  std::uint64_t not_before_ns{0};
  std::uint64_t sequence{0};  ///< position on its stream
  std::uint64_t order{0};     ///< position among all operations
};

/// The work queue behind a stream handle.
///
/// Invariants:
///  I1  completed <= submitted; queue holds the operations that are submitted, not running and not completed, in order
///  I2  the head of the queue runs only if all points in its `after` are reached, the stream is not held, and no other host
///      function runs on the device if it is one: the real runtime has one thread for them
///  I3  ids are never reused; handles are reused immediately, as in the real runtime
struct stream : std::enable_shared_from_this<stream> {
  enum class kind { legacy, per_thread, created };

  std::uint64_t id{0};
  int device{0};
  kind type{kind::created};
  unsigned flags{0};
  int priority{0};
  cudaStream_t handle{nullptr};
  bool destroyed{false};
  bool held{false};
  bool running{false};
  operation* running_work{nullptr};  ///< the running operation
  std::uint64_t submitted{0};
  std::uint64_t completed{0};
  std::uint64_t time_ns{0};  ///< end of the last completed operation
  std::deque<operation> queue;
  vector_clock clock;  ///< clock of the last submitted operation
  std::shared_ptr<capture> capturing;
  void const* created_at{nullptr};

  [[nodiscard]] bool idle() const noexcept { return completed == submitted; }
  [[nodiscard]] bool blocking() const noexcept { return (flags & cudaStreamNonBlocking) == 0; }
};

inline bool point::reached() const noexcept { return of == nullptr || of->completed >= sequence; }
inline std::uint64_t point::time_ns() const noexcept
{
  if (end_ns != nullptr) { return *end_ns; }
  if (known_ns != unknown_ns) { return known_ns; }
  return of == nullptr ? 0 : of->time_ns;
}

/// What an event handle stands for.
struct event {
  int device{0};
  unsigned flags{0};
  bool recorded{false};
  point at;
  vector_clock clock;
  std::shared_ptr<capture> captured_in;
  std::vector<std::size_t> captured_nodes;
  void const* created_at{nullptr};
};

/// A node of a graph: an operation and the nodes before it.
struct graph_node {
  operation work;
  std::vector<std::size_t> after;
};

/// A sequence of streams being captured into a graph.
struct capture {
  std::uint64_t id{0};
  cudaStreamCaptureMode mode{cudaStreamCaptureModeGlobal};
  std::uint64_t owner_thread{0};
  std::weak_ptr<stream> origin;
  bool invalidated{false};
  std::deque<graph_node> nodes;                                ///< the addresses of nodes are their handles
  std::map<std::uint64_t, std::vector<std::size_t>> frontier;  ///< by stream id: nodes that its next node follows
  std::vector<std::weak_ptr<stream>> members;
  std::vector<cudaGraphNode_t> asked_for;         ///< the nodes that cudaStreamGetCaptureInfo handed out last
  std::vector<std::function<void()>> on_destroy;  ///< free memory of the graph's memory nodes; called with the lock
};

/// What belongs to one device.
struct device {
  int number{0};
  std::shared_ptr<stream> legacy;
  std::vector<std::shared_ptr<stream>> streams;  ///< all but the legacy one; destroyed ones, too, while they have work
  vector_clock retired;                          ///< work of destroyed streams that no host thread has waited for
  vector_clock retired_blocking;                 ///< the part of it that the legacy stream waits for
  std::uint64_t retired_ns{0};                   ///< when the last of this work was done
  std::uint64_t retired_blocking_ns{0};
  bool runs_host_function{false};
  bool has_context{false};          ///< its primary context exists
  cudaError_t broken{cudaSuccess};  ///< an error that stays until cudaDeviceReset
  std::map<int, int> attribute_overrides;
  std::set<int> peers;  ///< devices whose memory it may touch
};

/// The calling thread's own state.
struct thread_state {
  std::uint64_t epoch;  ///< epoch of the world that this state belongs to
  int device;
  cudaError_t last_error;
  std::uint64_t number;  ///< number of the thread; never reused; 0: none yet
  cudaStreamCaptureMode capture_mode;
  bool has_context;  ///< a context of `device` is current; threads begin without one
  unsigned pushed;   ///< number of contexts under the current one
  struct covered_context {
    int device;
    bool is_there;
  };
  std::array<covered_context, 16> covered;  ///< the contexts under the current one, latest last
};

/// Counter of one API function, and its name.
class entry_point {
 public:
  explicit entry_point(char const* name);
  char const* const name;
  bool const makes_context;  ///< if none is current: a runtime function that works on the device
  std::atomic<std::uint64_t> calls{0};
};

/// Everything.
struct world {
  std::mutex mutex;
  std::condition_variable progress;  ///< some operation completed, or some stream was let go
  std::condition_variable work;      ///< signalled when called_workers is not 0
  std::uint64_t waiters{0};          ///< threads that wait for `progress`

  options machine;
  std::chrono::seconds timeout{60};
  bool quiet{false};
  bool prints_all{false};  ///< also prints violations that repeat
  bool checking{false};
  int driver_version{0};  ///< 0: not overridden
  int runtime_version{0};

  std::vector<device> devices;
  std::uint64_t next_stream_id{1};
  std::uint64_t next_thread{1};
  std::uint64_t next_capture{1};
  std::uint64_t next_order{1};
  std::uint64_t host_sequence{0};  ///< number of the host's own accesses so far
  std::uint64_t host_ns{0};
  std::uint64_t random_state{0};
  vector_clock host_clock;

  std::unordered_map<cudaStream_t, std::shared_ptr<stream>> stream_handles;
  std::vector<cudaStream_t> free_stream_handles;                                        ///< used from the back
  std::map<std::pair<std::uint64_t, int>, std::shared_ptr<stream>> per_thread_streams;  ///< by thread and device
  std::unordered_map<cudaEvent_t, std::shared_ptr<event>> event_handles;
  std::vector<cudaEvent_t> free_event_handles;
  std::unordered_map<cudaGraph_t, std::shared_ptr<capture>> graphs;
  std::unordered_map<cudaGraphExec_t, std::shared_ptr<capture>> graph_execs;
  std::vector<std::shared_ptr<capture>> captures;  ///< captures in progress

  std::vector<std::shared_ptr<stream>> active;  ///< streams whose queue is not empty
  unsigned workers{0};
  unsigned idle_workers{0};    ///< workers that wait for `work`
  unsigned called_workers{0};  ///< idle workers that shall wake up; called_workers <= idle_workers
  std::uint64_t running{0};    ///< number of running operations

  access_history history;
  violation_list violations;
  std::shared_ptr<memory_state> memory;
};

[[nodiscard]] world& the_world();
[[nodiscard]] thread_state& this_thread();

/// Whether this process was forked from one that used CUDA. The simulator's threads stayed in the parent, and another
/// thread may have held the lock; as with the real runtime, nothing works here.
[[nodiscard]] bool is_forked() noexcept;

/// Prints a line for a call in a process that was forked from one that used CUDA; stops after a few. Returns
/// cudaErrorInitializationError. Takes no lock.
cudaError_t report_fork(char const* function);

/// The calling thread's number; gives it one if it has none. Expects the lock.
[[nodiscard]] std::uint64_t thread_number();

/// Makes the devices of a new machine, without streams, events and graphs (streams.cpp).
void reset_streams();

/// Waits for running work and drops queued work (streams.cpp).
void drop_all_work(std::unique_lock<std::mutex>& lock);

/// Destroys the default streams of a thread that ends (streams.cpp).
void retire_thread(std::uint64_t number);

/// Forgets faults, counters of calls, version overrides and unloading (faults.cpp).
void reset_faults();

/// Set while calls have to take the slow way: armed faults, a broken or no device, unloading, a fork.
extern std::atomic<bool> attention;

/// Set while other processes share the devices.
extern std::atomic<bool> shares_devices;

/// Publishes this process's use of memory to the other processes (memory.cpp). Expects the lock.
void tell_usage() noexcept;

/// One API call under way, holding the lock.
class call {
 public:
  call(entry_point const& entry, std::unique_lock<std::mutex>& lock, void const* site)
    : entry_{entry}, lock_{lock}, site_{site}
  {}
  call(call const&)            = delete;
  call& operator=(call const&) = delete;
  ~call()
  {
    if (shares_devices.load(std::memory_order_relaxed)) { tell_usage(); }
  }
  [[nodiscard]] char const* name() const noexcept { return entry_.name; }
  [[nodiscard]] void const* site() const noexcept { return site_; }
  [[nodiscard]] std::unique_lock<std::mutex>& lock() noexcept { return lock_; }

  /// Reports misuse: one line on standard error, one violation. Returns `error`.
  [[gnu::format(printf, 3, 4)]] cudaError_t misuse(cudaError_t error, char const* format, ...);

 private:
  entry_point const& entry_;
  std::unique_lock<std::mutex>& lock_;
  void const* site_;
};

/// Set on a thread that runs a host function, a kernel's stand-in or other work of a stream: CUDA must not be called
/// there. `__thread`, because a thread_local of another file is accessed through a function.
extern __thread bool runs_work __attribute__((tls_model("initial-exec")));

/// The answer to a call while `runs_work`: cudaSuccess for a few functions, else cudaErrorNotPermitted after a report.
[[nodiscard]] cudaError_t refuse_inside_work(entry_point const& entry, void const* site) noexcept;

/// Makes the context of the thread's current device current; creates it if it is missing. Expects the lock.
void make_context_current();

/// The slow way into a call: the error that it has to answer with before it does anything, or cudaSuccess.
[[nodiscard]] cudaError_t attend(entry_point& entry);

/// Makes `error` the thread's last error. Returns it.
cudaError_t remember(cudaError_t error);

/// Runs an API function under the lock: counts it, lets faults and broken devices answer first, keeps the last error.
template <class Body>
cudaError_t enter(entry_point& entry, void const* returns_to, Body&& body) noexcept
{
  auto const* const site = program_caller(returns_to);
  entry.calls.fetch_add(1, std::memory_order_relaxed);
  if (attention.load(std::memory_order_relaxed)) {
    auto const error = attend(entry);
    if (error != cudaSuccess) { return remember(error); }
  }
  if (runs_work) {
    auto const error = refuse_inside_work(entry, site);
    if (error != cudaSuccess) { return remember(error); }
  }
  cudaError_t error = cudaSuccess;
  try {
    std::unique_lock<std::mutex> lock{the_world().mutex};
    if (entry.makes_context) { make_context_current(); }
    call c{entry, lock, site};
    error = body(c);
  } catch (std::exception const&) {
    error = cudaErrorMemoryAllocation;  // the host's memory is exhausted
  }
  return error == cudaSuccess ? cudaSuccess : remember(error);
}

/// enter() without the lock, for functions that only use the thread's own state.
template <class Body>
cudaError_t enter_unlocked(entry_point& entry, Body&& body) noexcept
{
  entry.calls.fetch_add(1, std::memory_order_relaxed);
  if (attention.load(std::memory_order_relaxed)) {
    auto const error = attend(entry);
    if (error != cudaSuccess) { return remember(error); }
  }
  if (runs_work) {
    auto const error = refuse_inside_work(entry, nullptr);
    if (error != cudaSuccess) { return remember(error); }
  }
  auto const error = body();
  return error == cudaSuccess ? cudaSuccess : remember(error);
}

/// The body of an API function. `c` is the call.
///
///   cudaError_t cudaEventQuery(cudaEvent_t event)
///   {
///     CUDASIM_CALL(cudaEventQuery, { ...; return cudaSuccess; });
///   }
///
/// After a fork, the child must not touch what a thread of the parent may have held, such as the guard of `entry`.
#define CUDASIM_CALL(function, ...) CUDASIM_CALL_AT(function, __builtin_return_address(0), __VA_ARGS__)

/// CUDASIM_CALL for a function behind two symbols, cudaX and its twin cudaX_ptsz or cudaX_ptds: both pass their return
/// address as `site`, and the twin passes per_thread(stream).
#define CUDASIM_CALL_AT(function, site, ...)                                                     \
  if (::cudasim::is_forked()) { return ::cudasim::remember(::cudasim::report_fork(#function)); } \
  static ::cudasim::entry_point entry{#function};                                                \
  return ::cudasim::enter(entry, site, [&]([[maybe_unused]] ::cudasim::call & c) -> cudaError_t __VA_ARGS__)

/// What stream 0 means in code compiled for per-thread default streams.
inline cudaStream_t per_thread(cudaStream_t s) noexcept { return s == nullptr ? cudaStreamPerThread : s; }

// --- Streams, events and time (streams.cpp). All functions below expect the lock.

/// The stream or event that a handle names for the calling thread; null after a misuse report (cudaErrorInvalidResourceHandle).
[[nodiscard]] std::shared_ptr<stream> find_stream(call& c, cudaStream_t handle);
[[nodiscard]] std::shared_ptr<event> find_event(call& c, cudaEvent_t handle);

/// The device current to the calling thread.
[[nodiscard]] device& current_device();

/// A device that a test names. Throws std::invalid_argument, with the name of the test's call, if there is none.
[[nodiscard]] device& device_of_test(char const* function, int number);

/// Queues an operation: orders it after the stream's earlier work, the default stream's rules and what the host knows, and
/// shows its accesses to the checker. While the stream captures, adds a node to the graph instead.
/// Fails with cudaErrorStreamCapture... if the capture forbids it.
cudaError_t submit(call& c, std::shared_ptr<stream> const& s, operation&& work);

/// The end of all work that the stream has now.
[[nodiscard]] point end_of(std::shared_ptr<stream> const& s);

/// Whether everything is done that the device's default stream waits for. If so, the host's clock covers it.
[[nodiscard]] bool default_stream_is_done(device const& d);

/// Blocks until the point is reached. Then the host's clock covers all that came before it.
cudaError_t wait_for(call& c, point const& where, vector_clock const& clock);

/// Blocks until all work that the stream has now is done.
cudaError_t wait_for(call& c, std::shared_ptr<stream> const& s);

/// Blocks until all work that the device has now is done, on every stream.
cudaError_t wait_for_device(call& c, int device);

/// The error for a call that must not be made during a capture (cudaMalloc, cudaMemcpy, cudaEventQuery, ...).
/// Invalidates that capture, as the runtime does. cudaSuccess if no capture forbids the call.
[[nodiscard]] cudaError_t check_unsafe_call(call& c);

/// Adds an access of a host thread to the checker's history.
void check_host_access(char const* what, void const* site, std::uintptr_t begin, std::size_t bytes, bool write);

/// Makes every later call on the device answer `error`, until cudaDeviceReset.
void break_device(int device, cudaError_t error);

/// Adds a violation. Prints its line unless CUDASIM_QUIET is set, or the same mistake was printed often enough.
void report(violation::kind what, mistake const& by, std::string text);

/// Forgets all violations. First prints how many were not printed.
void forget_violations();

// --- Memory (memory.cpp and its companions). All functions below expect the lock.

/// The allocation that holds an address.
struct memory_info {
  std::uintptr_t begin;  ///< beginning of the allocation
  std::size_t bytes;
  int device;           ///< owner; cudaCpuDeviceId for host memory
  cudaMemoryType type;  ///< Device, Host (pinned or registered) or Managed; Unregistered if unknown to the simulator
};

/// Looks up the allocation that holds `address`; type is cudaMemoryTypeUnregistered, and begin and bytes are 0, if none does.
[[nodiscard]] memory_info lookup(void const* address);

/// Checks that work may touch the bytes: reports use after free, or bytes beyond the allocation, and returns false.
/// Ordinary host memory passes.
bool check_bytes(char const* what, void const* site, std::uintptr_t begin, std::size_t bytes);

/// Checks that work of `device` may touch the memory at `begin`: reports missing peer access, and returns false.
bool check_peer(char const* what, void const* site, std::uintptr_t begin, int device);

/// Called when the host has waited for a device: pools give back what they hold above their release threshold.
void pools_synchronized(int device);

/// Replaces the memory state by that of a new machine.
void reset_memory();

/// Frees everything of a device that cudaDeviceReset destroys; none of its work is under way.
void drop_device_memory(int device);

/// Appends outstanding memory, pools and mappings.
void list_memory(std::vector<outstanding>& out);

/// Appends outstanding streams, events and graphs.
void list_streams(std::vector<outstanding>& out);

/// The address of a driver function by its name, or null. cudaGetDriverEntryPoint hands it out (driver.cpp).
[[nodiscard]] void* driver_function(char const* name);

}  // namespace cudasim
