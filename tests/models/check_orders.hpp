// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weak_memory.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace weak_memory {

using set_up_program = std::function<void(program&)>;

/// Programs that together use a part of the library, and the file of that part.
struct checked_part {
  std::string file;  // its path in the repository
  std::vector<set_up_program> programs;
  limits given{};
};

/// Runs all executions of all programs, and expects no error.
void expect_right(checked_part const& part);

/// Plants bugs: weakens each memory order in the file, one at a time. Returns the weakenings that no program notices,
/// as `line of the source: from -> to`. Leaves out `harmless`, which a model of the file has already tried.
[[nodiscard]] std::set<std::string> unnoticed_weakenings(checked_part const& part,
                                                         std::set<std::string> const& harmless = {});

}  // namespace weak_memory
