// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/compare/plot.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>

namespace compare {

namespace {

// The palette of Okabe and Ito, which people with any kind of colour vision can tell apart.
constexpr std::array<char const*, 8> colours{
  "#000000", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#888888"};

constexpr int left_edge   = 180;
constexpr int right_edge  = 860;
constexpr int full_width  = 1040;
constexpr int line_height = 26;
constexpr int top_edge    = 60;

std::string escaped(std::string const& text)
{
  std::string result;
  for (auto const c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

std::string number(double value)
{
  char text[32];
  std::snprintf(text, sizeof text, std::fabs(value) >= 1000 ? "%.0f" : "%.4g", value);
  return text;
}

/// Maps values to horizontal positions.
class scale {
 public:
  scale(dot_plot const& plot) : logarithmic_{plot.logarithmic}
  {
    double least = 0;
    double most  = 0;
    bool first   = true;
    for (auto const& series : plot.all) {
      for (auto const& value : series.values) {
        if (!value || (logarithmic_ && *value <= 0)) { continue; }
        least = first ? *value : std::min(least, *value);
        most  = first ? *value : std::max(most, *value);
        first = false;
      }
    }
    if (logarithmic_) {
      low_  = first ? 0 : std::floor(std::log10(least));
      high_ = first ? 1 : std::max(low_ + 1, std::ceil(std::log10(most)));
      for (auto power = low_; power <= high_; ++power) { ticks_.push_back(std::pow(10.0, power)); }
    } else {
      most      = std::max(most, 1e-9);
      auto step = std::pow(10.0, std::floor(std::log10(most))) / 2;
      if (most / step > 10) { step *= 2; }
      if (most / step < 3) { step /= 5; }
      high_ = std::ceil(most / step - 1e-9) * step;
      for (int i = 0; i * step <= high_ * 1.0001; ++i) { ticks_.push_back(i * step); }
    }
  }

  [[nodiscard]] double place(double value) const
  {
    auto const at = logarithmic_ ? std::log10(value) : value;
    return left_edge + (at - low_) / (high_ - low_) * (right_edge - left_edge);
  }

  [[nodiscard]] std::vector<double> const& ticks() const { return ticks_; }

 private:
  bool logarithmic_;
  double low_{0};
  double high_{1};
  std::vector<double> ticks_;
};

}  // namespace

void write_svg(std::ostream& out, dot_plot const& plot)
{
  scale const axis{plot};
  auto const lines  = static_cast<int>(std::max(plot.labels.size(), plot.all.size()));
  auto const bottom = top_edge + lines * line_height;
  out << R"(<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12" width=")" << full_width
      << "\" height=\"" << bottom + 40 << "\">\n"
      << R"(<rect width="100%" height="100%" fill="white"/>)" << '\n'
      << "<text x=\"" << left_edge << "\" y=\"24\" font-size=\"15\">" << escaped(plot.title) << "</text>\n";
  for (auto const tick : axis.ticks()) {
    auto const x = number(axis.place(tick));
    out << "<line x1=\"" << x << "\" x2=\"" << x << "\" y1=\"" << top_edge - 10 << "\" y2=\"" << bottom
        << "\" stroke=\"#dddddd\"/>\n"
        << "<text x=\"" << x << "\" y=\"" << bottom + 16 << "\" text-anchor=\"middle\">" << number(tick) << "</text>\n";
  }
  out << "<text x=\"" << (left_edge + right_edge) / 2 << "\" y=\"" << bottom + 32 << "\" text-anchor=\"middle\">"
      << escaped(plot.unit) << "</text>\n";

  for (std::size_t i = 0; i < plot.labels.size(); ++i) {
    auto const y = top_edge + static_cast<int>(i) * line_height + line_height / 2;
    out << "<line x1=\"" << left_edge << "\" x2=\"" << right_edge << "\" y1=\"" << y << "\" y2=\"" << y
        << "\" stroke=\"#eeeeee\"/>\n"
        << "<text x=\"" << left_edge - 8 << "\" y=\"" << y + 4 << "\" text-anchor=\"end\">" << escaped(plot.labels[i])
        << "</text>\n";
    for (auto s = plot.all.size(); s-- > 0;) {  // the first series on top
      auto const& value = plot.all[s].values[i];
      if (!value || (plot.logarithmic && *value <= 0)) { continue; }
      out << "<circle cx=\"" << number(axis.place(*value)) << "\" cy=\"" << y << "\" r=\"5\" fill=\""
          << colours[s % colours.size()] << "\" fill-opacity=\"0.85\"><title>" << escaped(plot.all[s].name) << ", "
          << escaped(plot.labels[i]) << ": " << number(*value) << ' ' << escaped(plot.unit) << "</title></circle>\n";
    }
  }
  for (std::size_t s = 0; s < plot.all.size(); ++s) {
    auto const y = top_edge + static_cast<int>(s) * line_height + line_height / 2;
    out << "<circle cx=\"" << right_edge + 24 << "\" cy=\"" << y << "\" r=\"5\" fill=\"" << colours[s % colours.size()]
        << "\"/>\n<text x=\"" << right_edge + 36 << "\" y=\"" << y + 4 << "\">" << escaped(plot.all[s].name)
        << "</text>\n";
  }
  out << "</svg>\n";
}

}  // namespace compare
