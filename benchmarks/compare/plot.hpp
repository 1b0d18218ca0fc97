// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace compare {

/// One dot for each series and label; nothing where there is no value.
struct dot_plot {
  std::string title;
  std::string unit;
  bool logarithmic{false};  ///< then all values are above 0
  std::vector<std::string> labels;
  struct series {
    std::string name;
    std::vector<std::optional<double>> values;  ///< one for each label
  };
  std::vector<series> all;
};

/// Draws it as SVG: a line for each label, a colour for each series, each dot with a tooltip.
void write_svg(std::ostream& out, dot_plot const& plot);

}  // namespace compare
