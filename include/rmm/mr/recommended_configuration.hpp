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

/// What a program wants of the resource that is chosen for it.
struct recommendation_options {
  std::optional<memory_amount> initial{};  ///< memory that is taken at once; none by default
  std::optional<memory_amount> maximum{};  ///< memory that is held at most
  bool oversubscribe{false};               ///< more memory than the device has, in the host's
};

/// The configuration that is chosen, and why.
struct recommended_configuration {
  resource_configuration configuration;
  std::string explanation;  ///< a sentence a line
};

/// The resource to take on a device with such traits. Throws logic_error if the device cannot do what is wanted.
[[nodiscard]] RMM_COLD inline recommended_configuration recommend_configuration(
  recommendation_options const& wanted, rmm::detail::device_traits const& device)
{
  using kind = detail::resource_kind;
  using rmm::detail::format_bytes;
  std::string text;
  std::string why =
    format_bytes(device.free_bytes) + " of the device's " + format_bytes(device.total_bytes) + " are free.\n";
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
             "The device uses the host's ordinary memory, so a pool of that holds what does not fit.");
    } else {
      RMM_EXPECTS(device.has_managed_memory,
                  "More memory than the device has was asked for, and it uses neither managed memory nor the host's");
      choose(kind::pool,
             ",upstream=managed,prefetch",
             "Managed memory moves to the host what does not fit; what is allocated is moved to the device ahead.");
    }
  } else if (device.has_virtual_memory) {
    choose(kind::elastic,
           "",
           "The device has virtual memory: a pool over that grows in place, is not fragmented above the size of a "
           "chunk, and "
           "gives back what is not used.");
  } else if (device.has_async_pools) {
    choose(kind::cached,
           "",
           "The device has no virtual memory, but pools of the driver's, which give back; a cache before one makes it "
           "fast.");
  } else {
    choose(kind::pool, "", "The device has neither virtual memory nor pools of the driver's: a pool over cudaMalloc.");
    limit_to("90%free", "A pool keeps what it has, so a tenth of what is free is left to others.");
  }
  if (device.shares_memory_with_host && !wanted.oversubscribe) {
    limit_to("75%", "The device shares its memory with the host: a quarter is left to that.");
  }
  if (wanted.initial) { text += ",initial=" + wanted.initial->text(); }
  if (maximum) { text += ",max=" + maximum->text(); }
  return {resource_configuration::parse(text), std::move(why)};
}

/// The same for the current device.
[[nodiscard]] RMM_COLD inline recommended_configuration recommend_configuration(
  recommendation_options const& wanted = {})
{
  return recommend_configuration(wanted, rmm::detail::current_device_traits());
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
