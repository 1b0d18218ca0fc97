// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// cudasim: the CUDA runtime on the CPU, for tests.
///
/// Link `rmm::cudart_sim` in place of the CUDA runtime and a program that calls `cudaMalloc`, streams, events, pools and
/// the rest runs with no GPU. This header is what a test uses on top: it configures the simulated machine, steps its
/// streams, launches stand-ins for kernels, injects faults and reads the reports. A program that only uses the CUDA
/// API does not need it; the environment configures such a program:
///
///   CUDASIM_DEVICES=4          number of devices (default 1)
///   CUDASIM_MEMORY=141GB       memory of each device; B, KB, MB, GB, TB and KiB, MiB, GiB, TiB (default 141GB, at most 64TiB)
///   CUDASIM_MODE=threads       `threads` or `stepped`, see execution below (default threads)
///   CUDASIM_SEED=7             seed of the stepping order
///   CUDASIM_CHECK=1            turns the ordering checker on
///   CUDASIM_FAULT=cudaMalloc:3:cudaErrorMemoryAllocation[:COUNT][,...]
///                              the 3rd call of cudaMalloc fails with that error; `*` means any function
///   CUDASIM_REPORT=FILE        at exit writes calls, leaks and violations to FILE (`-` is standard error; in the name, `%p`
///                              is the id of the process and `%%` a per cent sign; a symbolic link is refused); a program
///                              that ends with status 0 then ends with 66 if there was a leak or a violation, or if the
///                              report could not be written
///   CUDASIM_SHARED=FILE        processes that name the same file share the memory of the devices: memory that one process
///                              takes is not free for the others
///   CUDASIM_TIMEOUT=SECONDS    a wait that lasts longer ends with cudaErrorLaunchTimeout and a message (default 60)
///   CUDASIM_QUIET=1            no one-line diagnostics on standard error
///   CUDASIM_ALL=1              prints every violation and leak; without it, the first three of each mistake and a count
///
/// Any thread may call these functions unless a comment says otherwise. A call that names a device that does not exist,
/// or asks for something impossible, throws std::invalid_argument and changes nothing.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#define CUDASIM_EXPORT __attribute__((visibility("default")))

namespace cudasim {

// --- The machine

/// How the work of streams runs.
enum class execution {
  threads,  ///< in the background, on real threads, as soon as its dependencies allow
  stepped,  ///< only when a test steps it or a call waits for it; deterministic for a given seed
};

/// What the simulated machine looks like.
struct options {
  int devices{1};
  std::size_t memory_bytes{141'000'000'000};  ///< bytes of memory of each device
  execution mode{execution::threads};
  std::uint64_t seed{0};  ///< 0: step() runs ready work in order of submission; else the order is drawn from it
  bool check_ordering{false};
};

/// The options that the environment sets.
[[nodiscard]] CUDASIM_EXPORT options environment_options();

/// The options in force.
[[nodiscard]] CUDASIM_EXPORT options current_options();

/// Starts over with a new machine: all handles, memory, reports, counters and faults are gone.
///
/// Work that still runs is waited for; what was queued and never ran is dropped. No other thread may be inside a CUDA call.
CUDASIM_EXPORT void reset(options const& machine = environment_options());

/// Overrides what cudaDeviceGetAttribute (and cudaGetDeviceProperties where it has the field) reports for a device.
CUDASIM_EXPORT void set_device_attribute(int device, cudaDeviceAttr attribute, int value);

/// Overrides what cudaDriverGetVersion and cudaRuntimeGetVersion report; 0 leaves one as it is.
CUDASIM_EXPORT void set_versions(int driver, int runtime);

/// From now on every call answers cudaErrorCudartUnloading, as the real runtime does while the process ends, until reset().
CUDASIM_EXPORT void begin_unloading();

/// Breaks a device, as a crashed kernel does: each later call that uses it answers `error`, until cudaDeviceReset() or
/// reset(). Calls that need no device still work. `cudaSuccess` repairs the device.
CUDASIM_EXPORT void fail_device(int device, cudaError_t error);

/// Stands for another program that takes memory of a device: subtracts `bytes` from the free memory there. Returns
/// false, and changes nothing, if less is free. A second call replaces the first.
CUDASIM_EXPORT bool occupy(int device, std::size_t bytes);

/// Whether the device has a primary context. A context is made by cudaSetDevice() (as since CUDA 12), cudaInitDevice(),
/// cuDevicePrimaryCtxRetain(), cudaDeviceEnablePeerAccess() with this device as the peer, and by each runtime call that
/// works on the current device (device 0 in a thread that set none). cudaDeviceReset() and reset() destroy it. On a
/// real device, a context takes hundreds of megabytes of memory.
[[nodiscard]] CUDASIM_EXPORT bool has_context(int device);

/// Bytes of one device, by use. `total == free + allocated + reserved_by_pools + physical + occupied`, plus the bytes
/// that other processes use where the device is shared.
struct memory_usage {
  std::size_t total;
  std::size_t free;
  std::size_t allocated;          ///< cudaMalloc, with the granularity of the device
  std::size_t reserved_by_pools;  ///< held by async pools, used or not
  std::size_t physical;           ///< chunks made by cuMemCreate
  std::size_t occupied;           ///< taken by occupy()
};

/// The present use of a device's memory.
[[nodiscard]] CUDASIM_EXPORT memory_usage usage(int device);

// --- Time and stepping

/// The host's virtual time. Advances when the host waits for work, and by advance().
[[nodiscard]] CUDASIM_EXPORT std::uint64_t now_ns();

/// Advances the host's virtual time, as if the host had worked for that long.
CUDASIM_EXPORT void advance(std::uint64_t nanoseconds);

/// Runs one operation that is ready, of any stream. Returns false if none is.
CUDASIM_EXPORT bool step();

/// Runs the next operation of `stream` if it is ready. Returns false if it is not.
CUDASIM_EXPORT bool step(cudaStream_t stream);

/// Runs or waits for all work that is not held back. Returns the number of operations that remain (held, or waiting for held ones).
CUDASIM_EXPORT std::size_t run_until_idle();

/// Keeps the work of a stream from starting until let_go(). Calls that wait for this work block meanwhile.
CUDASIM_EXPORT void hold(cudaStream_t stream);

/// Lets the work of a stream start again. One call is enough, however often hold() was called.
CUDASIM_EXPORT void let_go(cudaStream_t stream);

/// Number of operations of `stream` that have not completed.
[[nodiscard]] CUDASIM_EXPORT std::size_t pending(cudaStream_t stream);

// --- Kernels

/// Bytes that an operation touches.
struct range {
  void const* ptr;
  std::size_t bytes;
};

/// The name of a kernel stand-in in reports, and its duration in virtual time.
struct kernel {
  char const* name{"kernel"};
  std::uint64_t duration_ns{2'000};
};

namespace detail {
CUDASIM_EXPORT cudaError_t launch(cudaStream_t stream,
                                  std::vector<range> reads,
                                  std::vector<range> writes,
                                  std::function<void()> body,
                                  kernel const& traits,
                                  void const* call_site);
}  // namespace detail

/// Stands for a kernel launch: queues `body`, which reads and writes the given bytes when `stream` reaches it.
///
/// `body` may be empty. It must not call CUDA: inside it, as in host functions, calls answer cudaErrorNotPermitted. The
/// checker compares the declared bytes with those of all other work.
[[gnu::noinline]] inline cudaError_t launch(cudaStream_t stream,
                                            std::vector<range> reads,
                                            std::vector<range> writes,
                                            std::function<void()> body = {},
                                            kernel const& traits       = {})
{
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  if (stream == nullptr) { stream = cudaStreamPerThread; }
#endif
  return detail::launch(
    stream, std::move(reads), std::move(writes), std::move(body), traits, __builtin_return_address(0));
}

// --- The ordering checker

/// Something that a correct program does not do.
struct violation {
  enum class kind {
    race,            ///< two uses of the same bytes, one of them a write, that nothing orders
    use_after_free,  ///< work on memory that was freed before the work was submitted
    out_of_bounds,   ///< work on memory that no allocation holds
    misuse,          ///< a call that CUDA answers with an error, and that no correct program makes
    deadlock,        ///< a wait that cannot end
  };
  kind what;
  std::string text;  ///< one line; names both places if there are two
};

/// Turns the checker on or off. Work submitted while it is off is neither checked nor used as ordering for later work.
CUDASIM_EXPORT void check_ordering(bool on);

/// Tells the checker that the calling thread reads or writes memory itself (pinned, managed, or device memory in a test).
CUDASIM_EXPORT void touch(void const* ptr, std::size_t bytes, bool write);

/// All violations since reset() or clear_violations(), oldest first, misuse included. After 100,000 violations, only
/// the first three of each mistake are added; the rest are counted.
[[nodiscard]] CUDASIM_EXPORT std::vector<violation> violations();

/// Number of violations since reset() or clear_violations(), including those that violations() leaves out.
[[nodiscard]] CUDASIM_EXPORT std::uint64_t violation_count();

/// Forgets the violations so far. A report at exit does not list them.
CUDASIM_EXPORT void clear_violations();

// --- The ledger

/// Something that was made and not yet given back.
struct outstanding {
  std::string made_by;   ///< the call, e.g. "cudaMalloc"
  std::string freed_by;  ///< the call that gives it back
  void const* handle;
  std::size_t bytes;  ///< 0 if it is not memory
  int device;
  std::string where;  ///< the place of the call, if symbols tell it
};

/// Everything that has not been given back: memory of all kinds, streams, events, pools, graphs, handles, mappings.
[[nodiscard]] CUDASIM_EXPORT std::vector<outstanding> ledger();

/// ledger() as text, one line each; empty if nothing is outstanding.
[[nodiscard]] CUDASIM_EXPORT std::string leak_report();

// --- Faults and counters

/// Makes calls fail that would have succeeded. A call that fails this way has no effect.
struct fault {
  std::string function{"*"};  ///< name of a CUDA function, e.g. "cudaMalloc", as for calls(); "*" is any function
  std::uint64_t nth{1};       ///< number of the first failing call; 1 is the next call
  cudaError_t error{cudaErrorMemoryAllocation};
  std::uint64_t count{1};  ///< number of calls in a row that fail
};

/// Arms one more fault. Throws std::invalid_argument if the function does not exist, or if `nth` or `count` is 0.
CUDASIM_EXPORT void inject(fault const& what);

/// Disarms all faults, those of CUDASIM_FAULT too.
CUDASIM_EXPORT void clear_faults();

/// Number of calls that faults made fail since reset().
[[nodiscard]] CUDASIM_EXPORT std::uint64_t faults_fired();

/// Calls of one CUDA function, or of all, since reset(). A per-thread-stream twin counts as the function itself. A
/// driver function that does the same as a runtime function also counts as that one: cuEventRecord as cudaEventRecord.
[[nodiscard]] CUDASIM_EXPORT std::uint64_t calls(std::string const& function = "*");

/// Runs `scenario` again and again, with its 1st, 2nd, ... CUDA call failing with `error`, until a run meets no fault.
///
/// Calls `verify(n)` after each run that met a fault, where n is the number of the failed call. Returns the number of
/// such runs. The scenario catches the errors it expects. Other exceptions leave this function after the faults are cleared.
template <class Scenario, class Verify>
std::uint64_t for_each_fault(Scenario&& scenario,
                             Verify&& verify,
                             cudaError_t error           = cudaErrorMemoryAllocation,
                             std::string const& function = "*")
{
  struct clear_at_exit {
    ~clear_at_exit() { clear_faults(); }
  } const guard{};
  for (std::uint64_t n = 1;; ++n) {
    auto const before = faults_fired();
    inject(fault{function, n, error, 1});
    scenario();
    clear_faults();
    if (faults_fired() == before) { return n - 1; }
    verify(n);
  }
}

}  // namespace cudasim
