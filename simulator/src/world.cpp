// SPDX-License-Identifier: Apache-2.0
#include "world.hpp"

#include <pthread.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace cudasim {
namespace {

/// Counts resets, so that a thread notices that its state belongs to an earlier machine.
std::atomic<std::uint64_t> world_epoch{1};

std::atomic<bool> forked{false};

/// At the end of a thread, gives back the thread's streams.
struct thread_exit {
  bool armed{false};
  ~thread_exit();
};

thread_local thread_state local_state __attribute__((tls_model("initial-exec")));
thread_local thread_exit local_exit;

/// Applies the options to the state that depends on them.
void build_machine(world& w)
{
  w.checking       = w.machine.check_ordering;
  w.random_state   = w.machine.seed;
  w.host_ns        = 0;
  w.host_clock     = {};
  w.next_stream_id = 1;
  w.next_order     = 1;
  w.host_sequence  = 0;
  w.history.clear();
  forget_violations();
}

thread_exit::~thread_exit()
{
  if (is_forked()) { return; }
  auto& w = the_world();
  std::unique_lock<std::mutex> const lock{w.mutex};
  if (local_state.epoch == world_epoch.load(std::memory_order_relaxed)) { retire_thread(local_state.number); }
}

}  // namespace

world& the_world()
{
  static std::atomic<world*> instance{nullptr};
  static std::mutex making;
  if (auto* const made = instance.load(std::memory_order_acquire)) { return *made; }

  std::unique_lock<std::mutex> const first{making};
  if (auto* const made = instance.load(std::memory_order_acquire)) { return *made; }
  auto* const made = new world;  // leaked on purpose: threads may call until the process is gone
  made->machine    = environment_options();
  std::unique_lock<std::mutex> const lock{
    made->mutex};  // others see the world at once, and wait here until it is built
  instance.store(made, std::memory_order_release);
  build_machine(*made);
  reset_memory();
  reset_streams();
  pthread_atfork(nullptr, nullptr, [] {
    forked.store(true, std::memory_order_relaxed);
    attention.store(true, std::memory_order_relaxed);
  });
  return *made;
}

bool is_forked() noexcept { return forked.load(std::memory_order_relaxed); }

thread_state& this_thread()
{
  auto const epoch = world_epoch.load(std::memory_order_relaxed);
  if (local_state.epoch != epoch) {
    local_state       = {};
    local_state.epoch = epoch;
  }
  return local_state;
}

std::uint64_t thread_number()
{
  auto& state = this_thread();
  if (state.number == 0) {
    state.number     = the_world().next_thread++;
    local_exit.armed = true;  // this first use registers the destructor for the thread
  }
  return state.number;
}

cudaError_t remember(cudaError_t error)
{
  if (error != cudaErrorNotReady) { this_thread().last_error = error; }  // cudaErrorNotReady is an answer, not an error
  return error;
}

options current_options()
{
  auto& w = the_world();
  std::unique_lock<std::mutex> const lock{w.mutex};
  return w.machine;
}

void reset(options const& machine)
{
  if (machine.devices < 0 || machine.devices > most_devices) {
    throw std::invalid_argument{"cudasim::reset: " + std::to_string(machine.devices) + " devices; it can be 0 to " +
                                std::to_string(most_devices)};
  }
  if (machine.memory_bytes > most_memory) {
    throw std::invalid_argument{"cudasim::reset: " + std::to_string(machine.memory_bytes) +
                                " bytes of memory; it can be up to " + std::to_string(most_memory)};
  }
  auto& w = the_world();
  std::unique_lock<std::mutex> lock{w.mutex};
  drop_all_work(lock);
  w.machine = machine;
  build_machine(w);
  reset_memory();
  reset_streams();
  reset_faults();
  world_epoch.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace cudasim
