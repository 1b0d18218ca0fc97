// SPDX-License-Identifier: Apache-2.0

// deallocation_reserve, in all executions of the C++ memory model: threads that take the last places, and get more, while others keep
// blocks there. Its numbers are relaxed, so no memory order can be weakened.

#include "modelled_std.hpp"

#include "check_orders.hpp"

#include <rmm/detail/heap/deallocation_reserve.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>

namespace {

using rmm::detail::deallocation_reserve;
using weak_memory::expect;
using weak_memory::program;

/// A reserve with `left` places that no claim has.
struct nearly_full {
  explicit nearly_full(std::size_t left) : claimed{places - left}
  {
    expect(reserve.try_claim(1) && reserve.try_claim(claimed - 1), "there are places");
  }

  void free_without_memory(std::size_t claims)
  {
    expect(reserve.try_claim(claims), "there is host memory for more places");
    reserve.put({4096, 256});
    reserve.release(claims - 1);
  }

  static constexpr std::size_t places = 257;  // after the first claim
  deallocation_reserve reserve;
  std::size_t claimed;
};

weak_memory::set_up_program threads_that_free(std::size_t left, std::size_t claims, bool with_checker)
{
  return [=](program& made) {
    auto const state = std::make_shared<nearly_full>(left);
    for (int thread = 0; thread != 2; ++thread) {
      made.thread([=] { state->free_without_memory(claims); });
    }
    if (with_checker) {
      made.thread([=] { expect(state->reserve.check_invariants(), "D1 and D3 hold at any time"); });
    }
    made.finally([=] {
      expect(state->reserve.claimed() == state->claimed + 2, "each block that waits has its claim");
      expect(state->reserve.waiting() == 2 && state->reserve.check_invariants(), "both blocks wait");
    });
  };
}

/// A thread may see the claims of another, and not yet the places that the other has made for them.
void claim_many_while_another_makes_places(program& made)
{
  auto const state = std::make_shared<nearly_full>(0);
  for (auto const claims : {std::size_t{1}, 10 * nearly_full::places}) {
    made.thread([=] { expect(state->reserve.try_claim(claims), "there is host memory for more places"); });
  }
  made.finally([=] { expect(state->reserve.check_invariants(), "each claim has a place"); });
}

void take_while_another_claims(program& made)
{
  auto const state = std::make_shared<nearly_full>(1);
  made.thread([=] {
    state->free_without_memory(2);
    state->reserve.take([](rmm::detail::address_range) { return true; });
  });
  made.thread([=] {
    state->reserve.release(1);
    expect(state->reserve.try_claim(2), "there is host memory for more places");
  });
  made.finally([=] {
    expect(state->reserve.claimed() == state->claimed + 1, "the block has returned its claim");
    expect(state->reserve.check_invariants(), "D1 and D3 hold");
  });
}

weak_memory::checked_part const reserve_part{"include/rmm/detail/heap/deallocation_reserve.hpp",
                                             {threads_that_free(1, 2, true),
                                              threads_that_free(0, 1, false),
                                              claim_many_while_another_makes_places,
                                              take_while_another_claims}};

TEST(DeallocationReserveModel, HasAPlaceForEachClaim) { weak_memory::expect_right(reserve_part); }

}  // namespace
