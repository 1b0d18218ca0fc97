// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device_traits.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/memory_amount.hpp>
#include <rmm/mr/resource_configuration.hpp>

#include <optional>
#include <string>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {

/// Wishes of a program for the resource that recommend_configuration() chooses.
struct recommendation_options {
  std::optional<memory_amount> initial{};  ///< the memory to take in the constructor; none by default
  std::optional<memory_amount> maximum{};  ///< the most memory to hold
  bool oversubscribe{false};               ///< allow more memory than the device has, in memory of the host
};

/// A configuration that fits a device, and the reasons. Use it to see or change what make_recommended_resource() makes.
///
/// @code{.cpp}
/// auto const recommended = rmm::mr::recommend_configuration();
/// std::puts(recommended.configuration.text().c_str());
/// @endcode
struct recommended_configuration {
  resource_configuration configuration;
  std::string explanation;  ///< one sentence on each line
};

/// Returns the configuration for a device with these traits. Throws logic_error if the device does not support the options.
[[nodiscard]] RMM_COLD inline recommended_configuration recommend_configuration(
  recommendation_options const& wanted, rmm::detail::device_traits const& device)
{
  using kind = detail::resource_kind;
  using rmm::detail::format_bytes;
  std::string text;
  std::string why = "The device has " + format_bytes(device.total_bytes) + ", of which " +
                    format_bytes(device.free_bytes) + " are free.\n";
  auto maximum      = wanted.maximum;
  auto const choose = [&](kind which, char const* options, char const* sentence) {
    text = detail::name_of(which) + std::string{options};
    why += std::string{sentence} + "\n";
  };
  auto const limit_to = [&](char const* amount, char const* sentence) {
    if (maximum) { return; }
    maximum = memory_amount::parse(amount);
    why += std::string{sentence} + "\n";
  };

  if (wanted.oversubscribe) {
    if (device.can_use_system_memory) {
      choose(kind::pool,
             ",upstream=(sam_headroom,headroom=5%)",
             "The device can use ordinary memory of the host: a pool of such memory can be larger than the device.");
    } else {
      RMM_EXPECTS(
        device.has_managed_memory,
        "The device supports neither managed memory nor pageable host memory, so it cannot be oversubscribed");
      choose(kind::pool,
             ",upstream=managed,prefetch",
             "Managed memory that does not fit moves to the host. Allocations are prefetched to the device.");
    }
  } else if (device.has_virtual_memory) {
    choose(
      kind::elastic,
      "",
      "The device has virtual memory: an elastic pool grows in place, loses little to fragmentation, and gives unused "
      "memory back.");
  } else if (device.has_async_pools) {
    choose(
      kind::cached,
      "",
      "The device has no virtual memory, but the driver's pools, which give memory back: a cache makes them fast.");
  } else {
    choose(kind::pool, "", "The device has neither virtual memory nor the driver's pools: a pool uses cudaMalloc.");
    limit_to("90%free", "Such a pool gives no memory back, so a tenth of the free memory is left to others.");
  }
  if (device.shares_memory_with_host && !wanted.oversubscribe) {
    limit_to("75%", "The device shares its memory with the host, so a quarter is left to the host.");
  }
  if (wanted.initial) { text += ",initial=" + wanted.initial->text(); }
  if (maximum) { text += ",max=" + maximum->text(); }
  return {resource_configuration::parse(text), std::move(why)};
}

/// Returns the configuration for the current device. Throws logic_error if the device does not support the options.
[[nodiscard]] RMM_COLD inline recommended_configuration recommend_configuration(
  recommendation_options const& wanted = {})
{
  return recommend_configuration(wanted, rmm::detail::current_device_traits());
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
