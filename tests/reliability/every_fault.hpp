// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/error.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <unistd.h>

namespace rmm::test {

// --- missing host memory

/// Makes the n-th allocation of host memory by the program fail: by its own code, the headers of the library, or the
/// C++ library for both, as for strings. Allocations of the simulator do not fail; inject() makes its calls fail.
struct host_memory_faults {
  /// With `n` of 0, only counts, and records which allocations belong to the simulator.
  static void arm(std::uint64_t n)
  {
    if (n == 0) { of_the_runtime.clear(); }
    seen   = 0;
    fails  = n;
    fired  = false;
    counts = true;
  }
  static void disarm() noexcept { counts = false; }

  [[nodiscard]] static bool is_of_the_runtime(std::uint64_t n)
  {
    return std::find(of_the_runtime.begin(), of_the_runtime.end(), n) != of_the_runtime.end();
  }

  /// Whether to make this expensive check: every eighth is made.
  [[nodiscard]] static bool is_to_be_checked() noexcept { return ++checks % 8 == 0; }

  /// A scope in which the test's own allocations neither fail nor count.
  class exemption {
   public:
    exemption() noexcept : was_exempt_{std::exchange(is_exempt, true)} {}
    ~exemption() { is_exempt = was_exempt_; }
    exemption(exemption const&)            = delete;
    exemption& operator=(exemption const&) = delete;

   private:
    bool was_exempt_;
  };

  /// Called by replaced allocation functions: whether this one fails.
  [[nodiscard]] static bool must_fail() noexcept;

  // Atomic, because some resources have threads of their own.
  inline static std::atomic<bool> counts{false};
  inline static std::atomic<bool> fired{false};
  inline static std::atomic<std::uint64_t> seen{0};
  inline static std::atomic<std::uint64_t> fails{0};
  inline static std::atomic<std::uint64_t> checks{0};
  inline static thread_local bool is_exempt{false};
  inline static std::mutex mutex;
  inline static std::vector<std::uint64_t> of_the_runtime;
};

/// An object that is made, used and destroyed while calls fail.
class subject {
 public:
  subject()                          = default;
  subject(subject const&)            = delete;
  subject& operator=(subject const&) = delete;
  virtual ~subject()                 = default;

  /// Allocations of the test itself do not fail. Not inlined, because compilers warn about pairs of new and delete that they see.
  [[nodiscard, gnu::noinline]] static void* operator new(std::size_t bytes)
  {
    host_memory_faults::exemption const exempt;
    return ::operator new(bytes);
  }
  [[gnu::noinline]] static void operator delete(void* ptr) { ::operator delete(ptr); }

  /// Uses the object, repeatably. If it throws, it has given back all that it took.
  virtual void use() = 0;

  /// Checks what must hold while no call is in progress. Nothing fails meanwhile.
  virtual void check() {}
};

/// A named way to make a subject.
struct fault_scenario {
  std::string name;
  std::function<std::unique_ptr<subject>()> make;
  std::size_t memory_bytes{std::size_t{64} << 20U};  ///< of each device; a context takes half of 64 MiB
};

// --- what can fail

/// A function of CUDA and the errors that it plausibly returns.
struct fallible_call {
  char const* name;
  std::vector<cudaError_t> errors;
  /// Whether the call releases something where errors cannot be reported. On failure, it and the last error may stay.
  bool ends_something{false};
  /// Whether the caller can do without its success. If another call fails then, the exception names that one.
  bool is_asked_in_passing{false};
  /// Beginnings of the names of errors with which such another call fails.
  std::vector<std::string> named_instead{};

  /// Whether an allocation that fails because of this call has to name it.
  [[nodiscard]] bool must_be_named() const noexcept { return !ends_something && !is_asked_in_passing; }
};

/// All functions that the library calls. Versions and entry points are asked for once per process.
inline std::vector<fallible_call> const& fallible_calls()
{
  // An error of earlier work, which any call can return.
  constexpr auto earlier = cudaErrorIllegalAddress;
  constexpr auto full    = cudaErrorMemoryAllocation;
  constexpr auto invalid = cudaErrorInvalidValue;
  constexpr auto unknown = cudaErrorUnknown;
  constexpr auto never   = cudaErrorNotSupported;
  constexpr auto wrong   = cudaErrorInvalidResourceHandle;
  constexpr auto capture = cudaErrorStreamCaptureUnsupported;
  constexpr auto late    = cudaErrorLaunchTimeout;
  constexpr auto gone    = cudaErrorCudartUnloading;
  static std::vector<fallible_call> const all{
    {"cuDeviceGet", {invalid, unknown}},
    {"cuDeviceGetAttribute", {invalid, unknown}},
    {"cuMemAddressReserve", {full, invalid, unknown}},
    {"cuMemCreate", {full, invalid, never, unknown}},
    {"cuMemExportToShareableHandle", {full, invalid, never}},
    {"cuMemGetAllocationGranularity", {invalid, never, unknown}},
    {"cuMemImportFromShareableHandle", {full, invalid, never}},
    {"cuMemMap", {full, invalid, unknown}},
    {"cuMemSetAccess", {full, invalid, never, unknown}},
    {"cuCtxPushCurrent", {invalid, unknown}, false, true},
    {"cuDevicePrimaryCtxGetState", {invalid, unknown}, false, true},
    {"cuDevicePrimaryCtxRetain", {full, invalid, unknown}, false, true},
    {"cuStreamGetCtx", {wrong, never, earlier}, false, true},  // the fallback for cuStreamGetDevice
    {"cuStreamGetDevice", {wrong, never, earlier}, false, true},
    {"cudaDeviceCanAccessPeer", {cudaErrorInvalidDevice, unknown}},
    {"cudaDeviceGetAttribute", {cudaErrorInvalidDevice, invalid, unknown}},
    {"cudaDeviceGetDefaultMemPool", {cudaErrorInvalidDevice, never, unknown}},
    {"cudaDeviceGetPCIBusId", {cudaErrorInvalidDevice, unknown}},
    {"cudaDeviceSynchronize", {earlier, late, capture, unknown}},
    {"cudaDriverGetVersion", {invalid, unknown}},
    {"cudaEventCreateWithFlags", {full, earlier, unknown}},
    {"cudaEventQuery", {cudaErrorNotReady, earlier, late, wrong, capture}},
    {"cudaEventRecord", {full, earlier, wrong, capture}},
    {"cudaHostAlloc", {full, invalid, earlier, unknown}},
    {"cudaHostRegister", {full, invalid, never, cudaErrorHostMemoryAlreadyRegistered}},
    {"cudaMalloc", {full, invalid, earlier, unknown}},
    {"cudaMallocFromPoolAsync", {full, invalid, never, earlier}},
    {"cudaMallocManaged", {full, invalid, never, earlier}},
    {"cudaMemAdvise", {invalid, cudaErrorInvalidDevice, never, earlier}},
    {"cudaMemGetDefaultMemPool", {invalid, never, unknown}},
    {"cudaMemGetInfo", {earlier, unknown}},
    {"cudaMemPoolCreate", {full, invalid, never}},
    {"cudaMemPoolGetAttribute", {invalid, unknown}},
    {"cudaMemPoolSetAttribute", {invalid, unknown}},
    {"cudaMemPoolTrimTo", {invalid, unknown}},
    {"cudaMemPrefetchAsync", {invalid, cudaErrorInvalidDevice, never, earlier}},
    {"cudaMemcpy", {invalid, earlier, late}},
    {"cudaMemcpyAsync", {invalid, earlier, wrong, late}},
    {"cudaMemsetAsync", {invalid, earlier, wrong, late}},
    {"cudaPointerGetAttributes", {invalid, unknown}},
    {"cudaRuntimeGetVersion", {invalid, unknown}},
    {"cudaStreamBeginCapture", {invalid, capture, earlier}},
    {"cudaStreamCreateWithFlags", {full, invalid, earlier}},
    {"cudaStreamEndCapture", {cudaErrorStreamCaptureInvalidated, capture}},
    {"cudaStreamGetCaptureInfo", {wrong, cudaErrorStreamCaptureImplicit, earlier}},
    {"cudaStreamGetId", {wrong, never, earlier}},
    {"cudaStreamIsCapturing", {wrong, cudaErrorStreamCaptureImplicit, earlier}, false, true},
    {"cudaStreamQuery", {cudaErrorNotReady, wrong, earlier}},
    {"cudaStreamWaitEvent", {wrong, invalid, earlier}},
    {"cudaThreadExchangeStreamCaptureMode", {invalid}, false, true, {"cudaErrorStreamCapture"}},

    {"cuCtxPopCurrent", {}},  // fails only for a thread that pushed no context
    {"cuMemAddressFree", {invalid, gone}, true},
    {"cuMemRelease", {invalid, gone}, true},
    {"cuMemUnmap", {invalid, gone}, true},
    {"cudaEventDestroy", {wrong, gone, earlier}, true},
    {"cudaEventSynchronize", {earlier, late}, true},
    {"cudaFree", {invalid, earlier, gone}, true},
    {"cudaFreeAsync", {invalid, earlier, gone}, true},
    {"cudaFreeHost", {invalid, earlier, gone}, true},
    {"cudaGraphDestroy", {invalid}, true},
    {"cudaHostUnregister", {cudaErrorHostMemoryNotRegistered, earlier, gone}, true},
    {"cudaMemPoolDestroy", {invalid, gone}, true},
    {"cudaStreamDestroy", {wrong, gone, earlier}, true},
    {"cudaStreamSynchronize", {earlier, late, wrong, capture}, true},

    {"cudaGetDevice", {unknown, gone}, true},  // an unknown device is not restored either
    {"cudaSetDevice", {cudaErrorInvalidDevice, gone, unknown}, true},
    {"cuCtxGetCurrent", {unknown, gone}, true},
    {"cuCtxGetDevice", {unknown, gone}, true},
    {"cudaGetDeviceCount", {cudaErrorNoDevice, unknown}, true},
  };
  return all;
}

// --- the harness

/// Runs scenarios in which each call fails once, with each plausible error, and checks the state afterwards.
class every_fault {
 public:
  every_fault() { current_ = this; }
  every_fault(every_fault const&)            = delete;
  every_fault& operator=(every_fault const&) = delete;
  ~every_fault() { current_ = nullptr; }

  /// Starts a machine whose devices have so much memory. Called before each scenario.
  std::function<void(std::size_t memory_bytes)> start_machine{[](std::size_t) { cudasim::reset(); }};

  /// The driver's name of an error, which messages use where the driver is called directly.
  std::function<std::string(cudaError_t)> name_for_driver;

  /// Whether to try the next fault. Short runs try only some.
  std::function<bool()> is_drawn{[] { return true; }};

  /// Tries the faults of a scenario, up to the first at which the test fails. Returns whether there was none.
  bool run(fault_scenario const& scenario)
  {
    auto const before = failures();
    scenario_         = scenario.name;
    position_         = "without a fault";
    call_             = nullptr;
    start_machine(scenario.memory_bytes);
    run_once(
      scenario, [] { return false; }, false);  // fills what the process caches
    expect_clean(false, "after it was destroyed");
    if (failures() != before) { return false; }
    auto const calls       = calls_of(scenario);
    auto const allocations = host_memory_faults::seen.load();
    for (auto const& [call, count] : calls) {
      for (std::uint64_t n = 1; n <= count; ++n) {
        for (auto const error : call->errors) {
          if (!is_drawn()) { continue; }
          fail_call(scenario, *call, n, error);
          if (failures() != before) { return false; }
        }
      }
    }
    for (std::uint64_t n = 1; n <= allocations; ++n) {
      if (host_memory_faults::is_of_the_runtime(n) || !is_drawn()) { continue; }
      fail_host_allocation(scenario, n);
      if (failures() != before) { return false; }
    }
    return failures() == before;
  }

  [[nodiscard]] std::uint64_t runs() const noexcept { return runs_; }  ///< runs that met their fault
  [[nodiscard]] std::uint64_t of_host_memory() const noexcept { return of_host_memory_; }
  [[nodiscard]] std::uint64_t of_ends() const noexcept { return of_ends_; }  ///< runs after which something may stay
  [[nodiscard]] std::uint64_t thrown() const noexcept { return thrown_; }    ///< runs that threw
  [[nodiscard]] std::uint64_t named() const noexcept { return named_; }      ///< exceptions whose text names the error
  [[nodiscard]] std::size_t triples() const noexcept { return triples_.size(); }  ///< distinct (scenario, call, error)

  /// Writes the running scenario to a file. Called by a signal handler.
  static void describe_to(int file) noexcept
  {
    if (current_ == nullptr) { return; }
    for (auto const* const text : {&current_->scenario_, &current_->position_}) {
      static_cast<void>(!::write(file, text->data(), text->size()));
      static_cast<void>(!::write(file, "\n", 1));
    }
  }

 private:
  [[nodiscard]] static int failures()
  {
    return ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
  }

  using counted_calls = std::vector<std::pair<fallible_call const*, std::uint64_t>>;

  /// Counts the calls and host allocations of a run without a fault. All functions have to be in the table.
  counted_calls calls_of(fault_scenario const& scenario)
  {
    std::vector<std::uint64_t> before;
    for (auto const& call : fallible_calls()) { before.push_back(cudasim::calls(call.name)); }
    auto const all_before = countable_calls();
    host_memory_faults::arm(0);
    run_once(
      scenario, [] { return false; }, false);
    host_memory_faults::disarm();
    auto const all = countable_calls() - all_before;
    counted_calls counted;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      auto const& call = fallible_calls()[i];
      auto const made  = cudasim::calls(call.name) - before[i];
      sum += made;
      if (made != 0) { counted.emplace_back(&call, made); }
    }
    EXPECT_EQ(sum, all) << scenario_ << ": a function is called that is not in the table";
    expect_clean(false, "after it was destroyed");
    return counted;
  }

  [[nodiscard]] static std::uint64_t countable_calls()
  {
    std::uint64_t sum = cudasim::calls();
    for (auto const* const name : {"cudaGetLastError",
                                   "cudaPeekAtLastError",
                                   "cudaGetErrorName",
                                   "cudaGetErrorString",
                                   "cuGetErrorName",
                                   "cuGetErrorString",
                                   "cudasim::launch"}) {
      sum -= cudasim::calls(name);
    }
    return sum;
  }

  void fail_call(fault_scenario const& scenario, fallible_call const& call, std::uint64_t n, cudaError_t error)
  {
    auto const* const error_name = cudaGetErrorName(error);
    position_                    = std::string{call.name} + " #" + std::to_string(n) + " fails with " + error_name;
    auto const fired             = cudasim::faults_fired();
    call_                        = &call;
    error_                       = error;
    error_names_                 = {error_name, name_for_driver(error)};
    error_names_.insert(error_names_.end(), call.named_instead.begin(), call.named_instead.end());
    cudasim::inject({call.name, n, error, 1});
    run_once(
      scenario,
      [&] {
        bool const happened = cudasim::faults_fired() != fired;
        if (happened) { cudasim::clear_faults(); }
        return happened;
      },
      call.ends_something);
    cudasim::clear_faults();
    expect_clean(call.ends_something, "after it was destroyed");
    note(std::string{call.name} + " #" + std::to_string(n), error, cudasim::faults_fired() != fired);
    if (!cudasim::leak_report().empty()) { start_machine(scenario.memory_bytes); }
  }

  void fail_host_allocation(fault_scenario const& scenario, std::uint64_t n)
  {
    position_ = "host allocation #" + std::to_string(n) + " fails";
    call_     = nullptr;
    error_names_.clear();
    host_memory_faults::arm(n);
    run_once(
      scenario,
      [&] {
        if (host_memory_faults::fired) { host_memory_faults::disarm(); }
        return host_memory_faults::fired.load();
      },
      false);
    host_memory_faults::disarm();
    expect_clean(false, "after it was destroyed");
    note("host allocation #" + std::to_string(n), cudaErrorMemoryAllocation, host_memory_faults::fired);
  }

  void note(std::string call, cudaError_t error, bool happened)
  {
    if (!happened) { return; }
    ++runs_;
    of_host_memory_ += call_ == nullptr ? 1 : 0;
    of_ends_ += call_ != nullptr && call_->ends_something ? 1 : 0;
    triples_.emplace(scenario_, std::move(call), static_cast<int>(error));
  }

  /// Makes, uses and destroys an object. `fault_happened()` also disarms the fault.
  template <class FaultHappened>
  void run_once(fault_scenario const& scenario, FaultHappened fault_happened, bool something_may_stay)
  {
    last_text_.clear();
    ended_in_fault_ = false;
    std::unique_ptr<subject> object;
    bool failed = throws([&] { object = scenario.make(); });
    bool met    = fault_happened();
    if (failed) {
      expect(met, "cannot be made, though nothing fails");
      if (!met) { return; }
      expect_clean(something_may_stay, "after it could not be made");
      expect(!throws([&] { object = scenario.make(); }), "cannot be made a second time");
      if (object == nullptr) { return; }
    }
    failed            = throws([&] { object->use(); });
    bool const before = std::exchange(met, fault_happened() || met);
    expect(!failed || met, "cannot be used, though nothing fails");
    expect(!failed || !before || something_may_stay, "cannot be used after it was made in spite of a fault");
    if (met) {
      if (!something_may_stay) { object->check(); }
      bool const works = !throws([&] { object->use(); });
      expect(works || something_may_stay, "cannot be used again");
      if (!something_may_stay) { object->check(); }
    }
    object.reset();
    ended_in_fault_ = !met && fault_happened();
  }

  /// Whether the task throws. Checks that the exception says what is wrong:
  ///
  /// - if the host has no memory, a bad_alloc;
  /// - out_of_memory says how many bytes were asked for;
  /// - if CUDA fails, cuda_error and bad_alloc name the error. Allocations need not, if the call that failed releases
  /// something or its caller has a default answer: they go on, and may fail in another way;
  /// - logic_error blames the caller, so the error must be one about an unsupported operation.
  template <class Task>
  bool throws(Task task)
  {
    try {
      task();
      return false;
    } catch (rmm::out_of_memory const& e) {
      note_text(e.what());
      expect(names_a_size(), "does not say how much was asked for");
      expect_named(call_ != nullptr && call_->must_be_named());
    } catch (rmm::bad_alloc const& e) {
      note_text(e.what());
      expect_named(call_ != nullptr && call_->must_be_named());
      expect(call_ != nullptr || last_text_.find("host") != std::string::npos,
             "does not say that the host lacks memory");
    } catch (std::bad_alloc const& e) {
      note_text(e.what());
      expect(call_ == nullptr, "says that some memory is missing, not what failed");
    } catch (rmm::cuda_error const& e) {
      note_text(e.what());
      expect_named(true);
    } catch (rmm::logic_error const& e) {
      note_text(e.what());
      expect(call_ != nullptr && (call_->ends_something || says_what_cannot_be_done(error_)), "blames the caller");
    } catch (std::exception const& e) {
      expect(false, "throws what nobody expects:", e.what());
    } catch (...) {
      expect(false, "throws what is no exception");
    }
    return true;
  }

  [[nodiscard]] static bool says_what_cannot_be_done(cudaError_t error)
  {
    return error == cudaErrorInvalidValue || error == cudaErrorNotSupported ||
           error == cudaErrorStreamCaptureUnsupported || error == cudaErrorStreamCaptureImplicit;
  }

  void expect_named(bool must_be) { expect(!must_be || names_the_error(), "does not name the error"); }

  /// Whether the text has a number and a unit of bytes.
  [[nodiscard]] bool names_a_size() const
  {
    for (auto const* const unit : {" bytes", " B", " KiB", " MiB", " GiB", " TiB"}) {
      auto const at = last_text_.find(unit);
      if (at != std::string::npos && at != 0 && last_text_[at - 1] >= '0' && last_text_[at - 1] <= '9') { return true; }
    }
    return false;
  }

  /// Whether the last exception names the error.
  [[nodiscard]] bool names_the_error() const
  {
    return std::any_of(error_names_.begin(), error_names_.end(), [this](std::string const& name) {
      return !name.empty() && last_text_.find(name) != std::string::npos;
    });
  }

  void note_text(char const* text)
  {
    host_memory_faults::exemption const exempt;
    last_text_ = text;
    ++thrown_;
    named_ += names_the_error() ? 1 : 0;
    expect(!last_text_.empty(), "throws without a reason");
  }

  void expect_clean(bool something_may_stay, char const* when)
  {
    static_cast<void>(cudaDeviceSynchronize());
    auto const last = cudaGetLastError();
    if (something_may_stay) {
      cudasim::clear_violations();
    } else {
      expect(last == cudaSuccess || ended_in_fault_, "the last error is not cleared", when);
      auto const leaks = cudasim::leak_report();
      expect(leaks.empty(), leaks.c_str(), when);
      int device{};
      static_cast<void>(cudaGetDevice(&device));
      expect(device == 0, "another device is current", when);
      auto const violations = cudasim::violations();
      if (!violations.empty()) {
        expect(ended_in_fault_, violations[0].text.c_str(), when);
        cudasim::clear_violations();
      }
    }
    static_cast<void>(cudaSetDevice(0));
  }

  /// Takes no host memory unless the expectation fails.
  void expect(bool condition, char const* what, char const* when = "")
  {
    if (!condition) {
      host_memory_faults::disarm();
      ADD_FAILURE() << scenario_ << ", " << position_ << ": " << what << " " << when << (last_text_.empty() ? "" : "\n")
                    << last_text_;
    }
  }

  inline static every_fault* current_{nullptr};
  std::string scenario_;
  std::string position_;
  fallible_call const* call_{nullptr};    // the call that fails, or null
  cudaError_t error_{};                   // the error that it returns
  std::vector<std::string> error_names_;  // of the fault: the runtime's and the driver's; empty for missing host memory
  std::string last_text_;
  bool ended_in_fault_{false};  // a destructor that cannot wait still gives its memory back
  std::uint64_t runs_{0};
  std::uint64_t of_host_memory_{0};
  std::uint64_t of_ends_{0};
  std::uint64_t thrown_{0};
  std::uint64_t named_{0};
  std::set<std::tuple<std::string, std::string, int>> triples_;
};

}  // namespace rmm::test
