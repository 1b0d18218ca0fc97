// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/recommended_configuration.hpp>

#include <string>

namespace RMM_NAMESPACE {
namespace mr {

/// Makes the resource that fits the current device, by the features and the free memory of the device. Use it if you do not want to
/// choose. explanation() of the result has the reasons.
///
/// @code{.cpp}
/// auto const resource = rmm::mr::make_recommended_resource();
/// std::puts(resource.explanation().c_str());
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, *resource};
/// @endcode
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
