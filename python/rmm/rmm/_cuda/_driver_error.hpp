// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/cuda/driver.hpp>

#include <string>
#include <utility>

namespace rmm_python {

/// Returns the name and the description of a status of the CUDA driver. Without a driver, returns its number and a general text.
[[nodiscard]] inline std::pair<std::string, std::string> driver_error(int status)
{
  char const* name{};
  char const* description{};
  if (auto const* const driver = rmm::detail::find_driver()) {
    static_cast<void>(driver->error_name(static_cast<CUresult>(status), &name));
    static_cast<void>(driver->error_text(static_cast<CUresult>(status), &description));
  }
  return {name != nullptr ? name : "CUDA driver error " + std::to_string(status),
          description != nullptr ? description : "unrecognized error code"};
}

}  // namespace rmm_python
