// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace compare {

/// A plot with one dot for each series and label that have a value.
struct dot_plot {
  std::string title;
  std::string unit;
  bool logarithmic{false};  ///< requires values above 0
  std::vector<std::string> labels;
  struct series {
    std::string name;
    std::vector<std::optional<double>> values;  ///< one for each label
  };
  std::vector<series> all;
};

/// Draws the plot as SVG: one line for each label, one colour for each series, a tooltip for each dot.
void write_svg(std::ostream& out, dot_plot const& plot);

}  // namespace compare
