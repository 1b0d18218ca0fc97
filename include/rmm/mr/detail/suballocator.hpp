// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/heap_contents.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/detail/recovery_ladder.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/recovery.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {

struct memory_snapshot;

namespace mr {
namespace detail {

/// The base class of resources that allocate parts of larger blocks. It has a heap, the ladder for allocations that find no free memory,
/// and the figures of both. Derived classes decide where the memory comes from.
///
/// A template, so that translation units that include it without using it do not compile its members.
template <class Unused>
class basic_suballocator : public device_memory_resource {
 public:
  basic_suballocator(basic_suballocator const&)            = delete;
  basic_suballocator& operator=(basic_suballocator const&) = delete;

  /// Returns the figures of the resource: its allocated and free memory, and counts of how allocations were served.
  [[nodiscard]] RMM_COLD heap_figures figures() const { return figures_with(nullptr); }

  /// Returns all memory at one moment, range by range. Needs rmm/memory_snapshot.hpp.
  template <class Snapshot = memory_snapshot>
  [[nodiscard]] RMM_COLD Snapshot snapshot() const
  {
    typename Snapshot::maker made;
    this->add_to(made, {});
    return made.finish();
  }

 protected:
  using suballocator = basic_suballocator;  // the name of the base class in derived classes

  /// `order`: the rungs of the resource. `home`: the device of its memory; if negative, the current device.
  explicit basic_suballocator(recovery_order const& order, int home = -1) : heap_{home}, ladder_{order}
  {
    heap_.set_checks_captures(rmm::detail::check_capture_by_default);
  }
  ~basic_suballocator() override;

  template <class Maker>
  void add_to(Maker& made, typename Maker::view how) const
  {
    rmm::detail::heap_contents contents;
    auto const now = figures_with(&contents);
    made.add(contents, now, how);
  }

  /// Climbs until a rung serves `bytes` bytes, and returns them; null if none does. Skips the callback unless `ask` is true.
  [[nodiscard]] RMM_COLD void* climb(recovery_rungs& rungs,
                                     recovery_attempt& climbing,
                                     std::size_t bytes,
                                     bool ask = true);

  /// Throws out_of_memory with a report; without one if host memory runs out. The text begins with `what`.
  [[noreturn]] RMM_COLD void throw_exhausted(recovery_attempt const& failed,
                                             char const* what = "Maximum pool size exceeded");

  /// Adds the derived class's own figures to the report of a failure. Called without locks.
  virtual void describe(memory_report& /*report*/) const {}

  union {  // not destroyed in a forked child: a thread of its parent may have been changing it
    rmm::detail::stream_ordered_heap heap_;
  };
  recovery_ladder ladder_;

 private:
  [[nodiscard]] RMM_COLD heap_figures figures_with(rmm::detail::heap_contents* contents) const;
};

template <class Unused>
basic_suballocator<Unused>::~basic_suballocator()
{
  if (heap_.is_of_this_process()) { heap_.~basic_stream_ordered_heap(); }
}

template <class Unused>
void* basic_suballocator<Unused>::climb(recovery_rungs& rungs, recovery_attempt& climbing, std::size_t bytes, bool ask)
{
  rmm::detail::context_scope const with_context{heap_.context_for(climbing.stream.value())};
  return ladder_.climb(heap_, rungs, climbing, bytes, ask);
}

template <class Unused>
void basic_suballocator<Unused>::throw_exhausted(recovery_attempt const& failed, char const* what)
{
  ladder_.throw_exhausted(failed, what, [&] {
    auto report          = report_of(failed, heap_);
    report.pool.recovery = ladder_.figures();
    describe(report);
    return report;
  });
}

template <class Unused>
heap_figures basic_suballocator<Unused>::figures_with(rmm::detail::heap_contents* contents) const
{
  auto now     = heap_.figures(contents);
  now.recovery = ladder_.figures();
  return now;
}

using suballocator = basic_suballocator<void>;
RMM_COMPILED_ONCE(basic_suballocator<void>);

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
