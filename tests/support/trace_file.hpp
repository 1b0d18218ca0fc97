// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

namespace rmm::test {

/// Returns the path of a file of tests/traces. Without the sources, RMM_TEST_TRACES names the folder.
inline std::string trace_file(char const* name)
{
  auto const* const folder = std::getenv("RMM_TEST_TRACES");
  return std::string{folder != nullptr ? folder : RMM_TRACE_FOLDER} + "/" + name;
}

}  // namespace rmm::test
