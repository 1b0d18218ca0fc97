// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <algorithm>
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
    static runner const at_exit{};
    auto& all = lists.get();
    detail::mutex_lock const lock{all.mutex};
    all.actions.push_back(this);
  }

  exit_action(exit_action const&)            = delete;
  exit_action& operator=(exit_action const&) = delete;

  /// Waits for the action if it is running.
  ~exit_action()
  {
    if (!process_.is_current()) { return; }
    auto& all = lists.get();
    detail::mutex_lock const lock{all.mutex};
    all.actions.erase(std::remove(all.actions.begin(), all.actions.end(), this), all.actions.end());
  }

 private:
  struct action_list {
    detail::mutex mutex;
    std::vector<exit_action*> actions;
  };

  struct runner {
    runner()                         = default;
    runner(runner const&)            = delete;
    runner& operator=(runner const&) = delete;
    ~runner() { run(); }
  };

  RMM_COLD static void run()
  {
    auto* const all = lists.find();
    if (all == nullptr) { return; }
    detail::mutex_lock const lock{all->mutex};
    for (auto* const each : all->actions) { each->action_(each->argument_); }
  }

  inline static one_per_process<action_list> lists{};  // never destroyed

  function action_;
  void* argument_;
  owning_process process_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
