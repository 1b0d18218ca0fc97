// SPDX-License-Identifier: Apache-2.0
#include "../rmm/detail/heap/range_set_trial.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace {

/// Makes decisions out of the bytes of an input.
class bytes_as_choices {
 public:
  bytes_as_choices(std::uint8_t const* first, std::size_t count) : at_{first}, end_{first + count} {}

  [[nodiscard]] bool empty() const { return at_ == end_; }

  /// Returns a number below `below`, made of at most three bytes; 0 after the last byte.
  [[nodiscard]] std::size_t operator()(std::size_t below)
  {
    std::size_t value = next();
    if (below > 256) { value = value << 8U | next(); }
    if (below > 65536) { value = value << 8U | next(); }
    return value % below;
  }

 private:
  std::size_t next() { return empty() ? 0 : *at_++; }

  std::uint8_t const* at_;
  std::uint8_t const* end_;
};

}  // namespace

/// Uses a range_set as the bytes say. Throws if the range_set differs from the model.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size)
{
  bytes_as_choices choose{data, size};
  auto const blocks   = 1 + choose(8);
  auto const granules = 1 + choose(choose(2) == 0 ? 64 : 65536);
  rmm::test::range_set_trial trial{blocks, granules};
  for (std::size_t step = 1; !choose.empty(); ++step) {
    trial.step(choose);
    if (step % 16 == 0) { trial.check(); }
  }
  trial.finish(choose);
  return 0;
}
