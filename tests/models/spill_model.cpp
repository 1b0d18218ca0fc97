// SPDX-License-Identifier: Apache-2.0

// The counts of a spill_resource_adaptor, in all executions of the C++ memory model: threads allocate and free near a
// watermark, and near the share above which the hook is called.

#include "modelled_std.hpp"

#include "check_orders.hpp"

#include <rmm/mr/spill_resource_adaptor.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <set>
#include <string>

namespace {

using rmm::mr::spill_options;
using weak_memory::expect;
using weak_memory::program;

/// A maximum of 100 bytes, a hook above 50, and a watermark above 15 that is re-armed at 10.
struct spilling {
  std::atomic<int> called_back{0};
  std::atomic<std::size_t> asked{0};
  rmm::mr::detail::spill_policy policy{[this](std::size_t bytes) {
                                         asked += bytes;
                                         return std::size_t{0};
                                       },
                                       spill_options{100, 0.5, {{0.15, 0.10, [this](std::size_t) { ++called_back; }}}}};

  void allocate(std::size_t bytes)
  {
    policy.claim(bytes);
    if (policy.note_served(bytes)) { policy.notify(); }
  }
  void free(std::size_t bytes) { policy.note_freed(bytes); }
};

/// The use rises above the watermark while another thread frees. At the end the use is at the lower share, so the
/// next rise is reported.
void rise_beside_free(program& made)
{
  auto const state = std::make_shared<spilling>();
  state->allocate(10);
  made.thread([=] { state->allocate(10); });
  made.thread([=] { state->free(10); });
  made.finally([=] {
    expect(state->policy.used() == 10, "the use is exact");
    auto const before = state->called_back.load();
    state->allocate(10);
    expect(state->called_back == before + 1, "the watermark is lowered, so the next rise is told");
  });
}

/// Two threads rise above the watermark together: one of them calls back.
void rise_together(program& made)
{
  auto const state = std::make_shared<spilling>();
  for (int i = 0; i != 2; ++i) {
    made.thread([=] { state->allocate(10); });
  }
  made.finally([=] { expect(state->called_back == 1, "a rise is told once"); });
}

/// Two threads exceed the hook's share together: the hook is asked for all bytes above it.
void spill_together(program& made)
{
  auto const state = std::make_shared<spilling>();
  for (int i = 0; i != 2; ++i) {
    made.thread([=] { state->allocate(40); });
  }
  made.finally([=] { expect(state->asked >= 30, "the hook is asked for the bytes above its share"); });
}

/// A request that must not call the hook, beside one that claims bytes.
void try_beside_claim(program& made)
{
  auto const state = std::make_shared<spilling>();
  made.thread([=] { state->allocate(10); });
  made.thread([=] {
    if (state->policy.try_claim(10)) { state->policy.unclaim(10); }
  });
  made.finally([=] { expect(state->policy.used() == 10 && state->policy.try_claim(5), "claims are taken back"); });
}

weak_memory::checked_part const spill_part{"include/rmm/mr/spill_resource_adaptor.hpp",
                                           {rise_beside_free, rise_together, spill_together, try_beside_claim}};

TEST(SpillModel, RisesAreToldAndClaimsAreExact) { weak_memory::expect_right(spill_part); }

TEST(SpillModel, NeedsOneOrderWhereWatermarksAreLowered)
{
  // A rise that was noticed late is reported by the next allocation.
  std::set<std::string> expected;
  std::string const served =
    "return has_marks() && used_.fetch_add(bytes) + bytes > raised_above_.load();: seq_cst -> ";
  for (std::string const to : {"acq_rel", "acquire", "release", "relaxed"}) { expected.insert(served + to); }
  for (std::string const to : {"release", "relaxed"}) {
    expected.insert("raised_above_.store(above);: seq_cst -> " + to);
  }
  for (std::string const to : {"acquire", "relaxed"}) {
    expected.insert("if (each.raised || used_.load() <= each.high) { return false; }: seq_cst -> " + to);
    expected.insert(
      "now <= spill_at_ && bytes <= spill_at_ - now && now + bytes <= raised_above_.load();) {: seq_cst -> " + to);
  }
  // No thread of these programs tries upstream again.
  expected.insert("spilled_.fetch_add(rest, std::memory_order_release);: release -> relaxed");
  EXPECT_EQ(weak_memory::unnoticed_weakenings(spill_part), expected);
}

}  // namespace
