// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace rmm::tools {

/// The template of the report page, without its document.
[[nodiscard]] std::string_view page_template();

}  // namespace rmm::tools
