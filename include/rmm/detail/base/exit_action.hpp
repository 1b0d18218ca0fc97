// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <algorithm>
#include <atomic>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// An action that runs when the program ends, unless this object is destroyed before. For objects that programs often never destroy.
///
/// exit() calls the action on its thread, while other threads may still run. The action may only use objects that are never destroyed.
/// A forked child does not call the actions of its parent: they would tell of the parent's memory, and could wait for its threads. It has a
/// list of its own, because a thread of the parent may have held the lock of the parent's.
class exit_action {
 public:
  using function = void (*)(void* argument) noexcept;

  /// Throws std::bad_alloc.
  exit_action(function action, void* argument) : action_{action}, argument_{argument}
  {
    auto& all = list();
    detail::mutex_lock const lock{all.mutex};
    all.actions.push_back(this);
  }

  exit_action(exit_action const&)            = delete;
  exit_action& operator=(exit_action const&) = delete;

  /// Waits for the action if it is running.
  ~exit_action()
  {
    if (!is_in_its_process()) { return; }
    auto& all = list();
    detail::mutex_lock const lock{all.mutex};
    all.actions.erase(std::remove(all.actions.begin(), all.actions.end(), this), all.actions.end());
  }

  /// Whether this process made the action; false in a forked child.
  [[nodiscard]] bool is_in_its_process() const noexcept { return process_.is_current(); }

 private:
  struct action_list {
    owning_process process;
    detail::mutex mutex;
    std::vector<exit_action*> actions;
  };

  struct runner {
    runner()                         = default;
    runner(runner const&)            = delete;
    runner& operator=(runner const&) = delete;
    ~runner() { run(); }
  };

  /// Returns the newest list: that of this process, that of a parent, or null.
  [[nodiscard]] static std::atomic<action_list*>& newest()
  {
    static std::atomic<action_list*> list{nullptr};
    return list;
  }

  /// Returns the list of this process, which is never destroyed. Throws std::bad_alloc if there is none yet.
  [[nodiscard]] static action_list& list()
  {
    static runner const at_exit{};
    auto* now = newest().load(std::memory_order_acquire);
    if (now == nullptr || !now->process.is_current()) {
      auto* const made = new action_list;
      if (newest().compare_exchange_strong(now, made, std::memory_order_acq_rel)) { return *made; }
      delete made;  // another thread was faster
    }
    return *now;
  }

  RMM_COLD static void run()
  {
    auto* const all = newest().load(std::memory_order_acquire);
    if (all == nullptr || !all->process.is_current()) { return; }
    detail::mutex_lock const lock{all->mutex};
    for (auto* const each : all->actions) { each->action_(each->argument_); }
  }

  function action_;
  void* argument_;
  owning_process process_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
