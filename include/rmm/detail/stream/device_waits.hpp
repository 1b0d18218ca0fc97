// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/capture_announcements.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/export.hpp>

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

namespace RMM_NAMESPACE {
namespace detail {

/// The host's waits for the devices whose work may use the memory of a heap.
///
/// A set of devices is a number with a bit for each of devices 0 to 63. A wait makes no context: it is for devices that the process uses.
class device_waits {
 public:
  static constexpr std::uint64_t every_device = ~std::uint64_t{0};  // that the process uses

  /// Whether the host may wait for devices now, as far as captures are concerned.
  enum class permission : unsigned char { allowed, forbidden };

  /// `home`: the device that the memory belongs to; negative if the runtime did not say.
  explicit device_waits(int home) noexcept : home_{home} {}

  [[nodiscard]] int home() const noexcept { return home_; }

  /// Call it without the heap's lock.
  [[nodiscard]] static permission ask() noexcept
  {
    return may_wait_for_device() ? permission::allowed : permission::forbidden;
  }

  /// As ask(), for callers that hold the heap's lock or are inside a cache. Forbidden if the answer would take a lock that another
  /// thread holds.
  [[nodiscard]] static permission ask_locked() noexcept
  {
    return is_known_to_allow_waiting() ? permission::allowed : permission::forbidden;
  }

  /// The set with one device. Every device if there is no bit for it, or if `device` is negative: then the runtime did not say which it is.
  [[nodiscard]] static std::uint64_t set_of(int device) noexcept
  {
    return device >= 0 && device < bits ? std::uint64_t{1} << static_cast<unsigned>(device) : every_device;
  }

  /// Waits for all work of the devices of a set, of the home device if the set is empty. Returns false if the runtime cannot wait for
  /// one of them, or if that would break a capture.
  [[nodiscard]] RMM_COLD bool try_wait_for(std::uint64_t devices, permission may) const noexcept
  {
    if (devices == 0) { return try_wait(home_, may); }
    static_cast<void>(sees_one_device());  // asks for the number of devices where it is not known yet
    auto const count = known_device_count.load(std::memory_order_relaxed);
    if (count == 0) { return false; }
    for (int device = 0; device != count; ++device) {
      if (!has(devices, device)) { continue; }
      bool const is_used = count == 1 || devices != every_device || may_have_context(device);
      if (is_used && !try_wait(device, may)) { return false; }
    }
    return true;
  }

 private:
  static constexpr int bits = 64;

  [[nodiscard]] static bool has(std::uint64_t devices, int device) noexcept
  {
    return devices == every_device || (device < bits && (devices & set_of(device)) != 0);
  }

  [[nodiscard]] RMM_COLD static bool try_wait(int device, permission may) noexcept
  {
    if (may == permission::forbidden) { return false; }
    device_scope const on_device{device};
    return query_capture(cudaStreamLegacy).is_none() && try_synchronize_device();
  }

  int home_;
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
