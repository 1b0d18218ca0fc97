// SPDX-License-Identifier: Apache-2.0

// Process-wide objects, in all executions of the C++ memory model: threads in several shared objects, which find or make the object, and
// one that unloads a shared object meanwhile. The dynamic linker is a list of modules with notes, under a lock.

#include "modelled_std.hpp"

#include "check_orders.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::uint32_t number = 1;  // of the anchors' notes

/// A shared object with an anchor.
struct linked_module {
  struct note {
    ElfW(Nhdr) header{4, 4, number};
    std::array<char, 4> owner{'R', 'M', 'M', '\0'};
    std::int32_t distance{};
  };

  explicit linked_module(std::string name) : path{std::move(name)}
  {
    anchor_note.distance = static_cast<std::int32_t>(reinterpret_cast<std::intptr_t>(&anchor) -
                                                     reinterpret_cast<std::intptr_t>(&anchor_note.distance));
  }
  linked_module(linked_module const&)            = delete;
  linked_module& operator=(linked_module const&) = delete;

  std::string path;  // empty for the executable
  note anchor_note;
  weak_memory::atomic<void*> anchor{nullptr};
  bool is_pinned{false};
};

/// The dynamic linker of the process.
struct loader {
  weak_memory::mutex mutex;
  std::vector<linked_module*> loaded;  // in the order of loading
  bool pins{true};

  int visit(int (*visitor)(dl_phdr_info*, std::size_t, void*), void* data)
  {
    ::std::lock_guard<weak_memory::mutex> const lock{mutex};
    for (auto* const each : loaded) {
      ElfW(Phdr) segment{};
      segment.p_type  = PT_NOTE;
      segment.p_vaddr = reinterpret_cast<std::uintptr_t>(&each->anchor_note);
      segment.p_memsz = sizeof each->anchor_note;
      segment.p_align = 4;
      dl_phdr_info info{};
      info.dlpi_name  = each->path.c_str();
      info.dlpi_phdr  = &segment;
      info.dlpi_phnum = 1;
      visitor(&info, sizeof info, data);
    }
    return 0;
  }

  void* open(char const* path)
  {
    ::std::lock_guard<weak_memory::mutex> const lock{mutex};
    for (auto* const each : loaded) {
      if (each->path == path) { each->is_pinned = pins; }
    }
    return nullptr;
  }

  void unload(linked_module const& which)
  {
    ::std::lock_guard<weak_memory::mutex> const lock{mutex};
    for (auto at = loaded.begin(); at != loaded.end(); ++at) {
      if (*at == &which && !which.is_pinned) {
        loaded.erase(at);
        return;
      }
    }
  }
};

loader* of_process{};

}  // namespace

namespace RMM_NAMESPACE {
namespace detail {

// Found before the functions of the system.
static constexpr auto dl_iterate_phdr = [](auto* visitor, void* data) { return of_process->visit(visitor, data); };
static constexpr auto dlopen          = [](char const* path, int) { return of_process->open(path); };

}  // namespace detail
}  // namespace RMM_NAMESPACE

#include <rmm/detail/base/process_wide.hpp>

namespace {

using weak_memory::expect;
using weak_memory::program;
using unnoticed = std::set<std::string>;

class made_object {
 public:
  made_object() { made_ = 1; }
  void expect_made() const { expect(made_ == 1, "the object is made"); }

 private:
  weak_memory::plain<int> made_{0, "the process-wide object"};
};

struct process {
  /// `names`: whether the modules have one, and can be pinned. An executable has none.
  explicit process(bool names, bool pins = true)
  {
    for (auto& each : modules) {
      if (!names) { each.path.clear(); }
      linker.loaded.push_back(&each);
    }
    linker.pins = pins;
    of_process  = &linker;
  }

  void use(linked_module& in)
  {
    auto& found = rmm::detail::process_wide_object<made_object>(in.anchor, number, [] { return new made_object; });
    found.expect_made();
    seen.push_back(&found);
  }

  void expect_one() const
  {
    for (auto const* const each : seen) { expect(each == seen.front(), "all threads find one object"); }
  }

  std::array<linked_module, 4> modules{
    linked_module{"first"}, linked_module{"second"}, linked_module{"third"}, linked_module{"fourth"}};
  loader linker;
  std::vector<made_object const*> seen;  // the explorer runs one thread at a time
};

/// Threads in two modules, and a second one in the later of them, which may find the copy of the anchor.
void use_two_modules(program& made)
{
  auto const state = std::make_shared<process>(false);
  for (std::size_t const in : {0U, 1U, 1U}) {
    made.thread([=] { state->use(state->modules[in]); });
  }
  made.finally([=] { state->expect_one(); });
}

/// Threads in two modules, while a third one, which comes before them, is unloaded.
void unload_first(program& made, bool pins)
{
  auto const state = std::make_shared<process>(true, pins);
  made.thread([=] { state->use(state->modules[1]); });
  made.thread([=] { state->use(state->modules[2]); });
  made.thread([=] { state->linker.unload(state->modules[0]); });
  made.finally([=] { state->expect_one(); });
}

/// A thread in the last module, while two modules are unloaded that come before another one, which uses the object last.
void unload_two(program& made, bool pins)
{
  auto const state = std::make_shared<process>(true, pins);
  made.thread([=] { state->use(state->modules[3]); });
  made.thread([=] {
    state->linker.unload(state->modules[0]);
    state->linker.unload(state->modules[1]);
  });
  made.finally([=] {
    state->use(state->modules[2]);
    state->expect_one();
  });
}

weak_memory::checked_part process_wide_part()
{
  weak_memory::checked_part part;
  part.file     = "include/rmm/detail/base/process_wide.hpp";
  part.programs = {
    use_two_modules, [](program& made) { unload_first(made, true); }, [](program& made) { unload_two(made, true); }};
  return part;
}

TEST(ProcessWideModel, AllThreadsFindOneObjectThatIsMade) { weak_memory::expect_right(process_wide_part()); }

TEST(ProcessWideModel, NeedsItsPins)
{
  for (auto* const unload : {unload_first, unload_two}) {
    auto const found = weak_memory::explore([=](program& made) { unload(made, false); });
    EXPECT_NE(found.error.find("all threads find one object"), std::string::npos) << found.error;
  }
}

TEST(ProcessWideModel, NeedsItsOrders)
{
  EXPECT_EQ(weak_memory::unnoticed_weakenings(process_wide_part()), unnoticed{});
}

}  // namespace
