// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/export.hpp>

#include <cstddef>
#include <functional>

namespace RMM_NAMESPACE {
namespace mr {

/// A function that is called with the size of a failed allocation and its registered argument. Returns whether to try again.
///
/// @code{.cpp}
/// rmm::mr::failure_callback_t const give_up = [](std::size_t bytes, void*) {
///   std::printf("no memory for %zu bytes\n", bytes);
///   return false;
/// };
/// give_up(1000, nullptr);
/// @endcode
using failure_callback_t = std::function<bool(std::size_t, void*)>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
