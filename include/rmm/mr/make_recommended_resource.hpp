// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/recommended_configuration.hpp>

#include <string>

namespace RMM_NAMESPACE {
namespace mr {

/// Makes the resource that fits the current device: which that is depends on what the device can do, how much memory it has
/// and how much of that is free. explanation() of the result says why it was chosen.
[[nodiscard]] RMM_COLD inline configured_resource make_recommended_resource(recommendation_options const& options = {})
{
  std::string text{"recommended"};
  if (options.initial) { text += ",initial=" + options.initial->text(); }
  if (options.maximum) { text += ",max=" + options.maximum->text(); }
  if (options.oversubscribe) { text += ",oversubscribe"; }
  return configured_resource{text};
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
