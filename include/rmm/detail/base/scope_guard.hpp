// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <type_traits>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// A guard that calls a function at the end of the scope, unless it is dismissed: `scope_guard undo{[&]() noexcept { ... }};`.
///
/// Use it to undo a step if a later step throws. The function must be noexcept.
template <class Function>
class scope_guard {
  static_assert(std::is_nothrow_invocable_v<Function&>, "the function of a scope_guard must be noexcept");

 public:
  explicit scope_guard(Function undo) noexcept(std::is_nothrow_move_constructible_v<Function>) : undo_{std::move(undo)}
  {}

  ~scope_guard()
  {
    if (armed_) { undo_(); }
  }

  scope_guard(scope_guard const&)            = delete;
  scope_guard& operator=(scope_guard const&) = delete;

  /// Cancels the call of the function, after all steps succeeded.
  void dismiss() noexcept { armed_ = false; }

 private:
  Function undo_;
  bool armed_{true};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
