// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <type_traits>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {

/// Calls a function at the end of the scope unless dismissed: `scope_guard undo{[&]() noexcept {
/// ... }};`.
///
/// For undoing what was done when a later step throws. The function must be noexcept.
template <class Function>
class scope_guard {
  static_assert(std::is_nothrow_invocable_v<Function&>, "what undoes must not throw");

 public:
  explicit scope_guard(Function undo) noexcept(std::is_nothrow_move_constructible_v<Function>) : undo_{std::move(undo)}
  {}

  ~scope_guard()
  {
    if (armed_) { undo_(); }
  }

  scope_guard(scope_guard const&)            = delete;
  scope_guard& operator=(scope_guard const&) = delete;

  /// All went well: the function will not be called.
  void dismiss() noexcept { armed_ = false; }

 private:
  Function undo_;
  bool armed_{true};
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
