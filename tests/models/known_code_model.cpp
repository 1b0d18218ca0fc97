// SPDX-License-Identifier: Apache-2.0

// The cache in which librmm_audit.so finds the library of a piece of code, in all executions of the C++ memory model: threads look code
// up while others add it, and after objects were unloaded.

#include "modelled_std.hpp"

#include "../../tools/audit/known_code.hpp"
#include "check_orders.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>

namespace {

using weak_memory::atomic;
using weak_memory::expect;
using weak_memory::program;

constexpr std::uintptr_t code = 7;
constexpr std::uint32_t entry = 3;

struct cache {
  rmm::tools::audit::known_code<1> known{};
  atomic<bool> has_rmm{false};  // what else the thread that adds the code has found out
};

[[nodiscard]] bool finds(cache const& state)
{
  std::uint32_t found{};
  bool const is_there = state.known.find(code, found);
  expect(!is_there || found == entry, "code has the class that was added");
  return is_there;
}

/// A thread adds code, and another one finds it.
void add_and_find(program& made)
{
  auto const state = std::make_shared<cache>();
  made.thread([=] {
    state->has_rmm.store(true, std::memory_order_relaxed);
    state->known.add(code, entry);
  });
  made.thread([=] {
    if (finds(*state)) { expect(state->has_rmm.load(std::memory_order_relaxed), "who finds code knows its library"); }
  });
}

/// Two threads see that an object was unloaded, whose code is in the cache.
void unload(program& made)
{
  auto const state = std::make_shared<cache>();
  state->known.add(code, entry);
  for (int i = 0; i != 2; ++i) {
    made.thread([=] {
      state->known.forget_unloaded(1);
      expect(!finds(*state), "nobody finds code that is gone");
    });
  }
}

/// One thread saw the number of unloaded objects before the last one was unloaded. Its own code is still there.
void unload_twice(program& made)
{
  auto const state = std::make_shared<cache>();
  state->known.add(code, entry);
  made.thread([=] { state->known.forget_unloaded(1); });
  made.thread([=] {
    state->known.forget_unloaded(2);
    expect(!finds(*state), "nobody finds code that is gone");
  });
}

weak_memory::checked_part cached_code()
{
  weak_memory::checked_part checked;
  checked.file     = "tools/audit/known_code.hpp";
  checked.programs = {add_and_find, unload, unload_twice};
  return checked;
}

TEST(KnownCodeModel, ThreadsFindOnlyWhatIsThere) { weak_memory::expect_right(cached_code()); }

TEST(KnownCodeModel, EachOrderIsNeeded)
{
  EXPECT_EQ(weak_memory::unnoticed_weakenings(cached_code()), std::set<std::string>{});
}

}  // namespace
