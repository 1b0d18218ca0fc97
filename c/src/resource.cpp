// SPDX-License-Identifier: Apache-2.0
#include "resource.hpp"

#include "failure.hpp"
#include "libraries.hpp"
#include "live_blocks.hpp"
#include "process.hpp"
#include "sized_struct.hpp"
#include "to_stream.hpp"

#include <rmm/aligned.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/error.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/memory_report.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/detail/growing_pool.hpp>
#include <rmm/mr/detail/suballocator.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/resource_configuration.hpp>
#include <rmm/mr/trimmable_resource.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using rmm_c::activity;
using rmm_c::fail;
using rmm_c::guarded;
using rmm_c::to_stream;

/// A resource, and the decision when it ends.
///
/// These objects are reused for later resources and never freed, because a thread may look at one that has just ended.
///
/// Invariants:
///  R1  a phase is followed by the next one, and `gone` by `open` with a new number: a state never repeats
///  R2  the resource exists in the phases `open` and `closing`
///  R3  uses_ counts the live blocks and the calls in progress; after `open`, no new use is kept
///  R4  while no thread holds list_mutex(), a resource that serves libraries is in the phase `open`
/// So the resource ends once: in the thread that first finds no uses in the phase `closing`.
///
/// Order: all operations of state_ and uses_ are seq_cst. R3 is Dekker's argument. A thread that begins a use counts it and then reads the
/// state. The thread that closes changes the state and then sums the uses. So either the sum has the use, or the use finds the phase
/// `closing` and is not kept. remove_use() releases what the use did. The sum acquires that of all uses, so their work happens before the
/// resource is destroyed. The other members are plain: fill() writes them before it releases the phase `open`, which check_usable() acquires.
struct rmm_c_resource {
 public:
  /// Makes a resource on a device. Lets exceptions of its parts through.
  static rmm_c_resource* make(rmm::mr::resource_configuration const& configuration, int device)
  {
    rmm::detail::device_scope const on_device{device};
    rmm::mr::configured_resource made{configuration};
    if (made.device().value() != device) { throw rmm::cuda_error{"The device could not be made current"}; }
    rmm_c::note_that_cuda_is_used();
    auto* const result = take_gone();
    result->fill(std::move(made));
    return result;
  }

  /// A scope in which the resource does not end, unless it ended before.
  class use {
   public:
    explicit use(rmm_c_resource& resource) noexcept : resource_{resource} { resource_.add_use(); }
    ~use()
    {
      if (!is_kept_) { resource_.remove_use(); }
    }
    use(use const&)            = delete;
    use& operator=(use const&) = delete;

    /// Makes the use outlive the scope. It then belongs to a live block.
    void keep() noexcept { is_kept_ = true; }

   private:
    rmm_c_resource& resource_;
    bool is_kept_{false};
  };

  /// Returns RMM_C_OK if the resource may be used, else keeps a failure. Requires a use.
  [[nodiscard]] rmm_c_status check_usable() const noexcept
  {
    if (phase_of(state_.load()) != phase::open) {
      return fail(RMM_C_MISUSE, "the resource was given up by rmm_c_resource_destroy()");
    }
    return rmm_c::check_may_use_cuda(generation_);
  }

  /// Whether blocks may still be given back.
  [[nodiscard]] bool takes_blocks() const noexcept
  {
    auto const now = phase_of(state_.load());
    return now == phase::open || now == phase::closing;
  }

  [[nodiscard]] bool may_use_cuda() const noexcept { return rmm_c::may_use_cuda(generation_); }

  /// Ends the program's own use. Returns false if it was ended before, or never may be.
  [[nodiscard]] bool close() noexcept
  {
    auto now = state_.load();
    {
      std::lock_guard<std::mutex> const lock{rmm_c::list_mutex()};
      if (is_permanent_ || phase_of(now) != phase::open || !state_.compare_exchange_strong(now, now + 1)) {
        return false;
      }
      rmm_c::end_serving_locked(*this, device_);
    }
    end_if_unused(now + 1);
    return true;
  }

  /// Begins a use, which remove_use() has to end.
  void add_use() noexcept { uses_.add(); }

  /// Ends the use of a block or call.
  void remove_use() noexcept
  {
    uses_.remove();
    auto const now = state_.load();
    if (phase_of(now) == phase::closing) { end_if_unused(now); }
  }

  /// Returns the number of live blocks and of calls in progress on other threads. Requires a use.
  [[nodiscard]] std::uint64_t live_blocks() const noexcept
  {
    return static_cast<std::uint64_t>(
      std::max<std::int64_t>(uses_.sum() - 1, 0));  // blocks may move between shards during the sum
  }

  /// Whether blocks of `bytes` bytes have the alignment `alignment`.
  [[nodiscard]] bool has_alignment(std::size_t alignment, std::size_t bytes) const noexcept
  {
    if (alignment == 0) { return true; }
    auto const available = bytes >= alignment_threshold_ ? alignment_ : std::size_t{rmm::CUDA_ALLOCATION_ALIGNMENT};
    return rmm::is_supported_alignment(alignment) && alignment <= available;
  }

  [[nodiscard]] rmm::mr::device_memory_resource& memory() const noexcept { return *memory_; }
  [[nodiscard]] rmm::mr::configured_resource const& configured() const noexcept { return *made_; }
  [[nodiscard]] int device() const noexcept { return device_; }

  /// Makes later calls of close() return false.
  void make_permanent() noexcept { is_permanent_ = true; }

 private:
  enum class phase : unsigned { open, closing, ending, gone };

  static constexpr std::uint64_t phases = 4;

  [[nodiscard]] static phase phase_of(std::uint64_t state) noexcept { return static_cast<phase>(state % phases); }

  rmm_c_resource() = default;

  /// Returns an object for reuse whose resource is gone, or a new one.
  [[nodiscard]] static rmm_c_resource* take_gone()
  {
    {
      std::lock_guard<std::mutex> const lock{rmm_c::list_mutex()};
      if (auto* const taken = first_gone) {
        first_gone = taken->next_gone_;
        return taken;
      }
    }
    return new rmm_c_resource;
  }

  void fill(rmm::mr::configured_resource made) noexcept
  {
    made_.emplace(std::move(made));
    memory_     = made_->get();
    device_     = made_->device().value();
    generation_ = rmm_c::fork_generation();
    find_alignment(made_->configuration());
    state_.store(state_.load() + 1);
  }

  void find_alignment(rmm::mr::resource_configuration const& configuration) noexcept
  {
    alignment_           = rmm::CUDA_ALLOCATION_ALIGNMENT;
    alignment_threshold_ = 0;
    if (auto const chosen = configuration.amount("alignment")) {
      alignment_ = std::max(chosen->bytes(0, 0), std::size_t{rmm::CUDA_ALLOCATION_ALIGNMENT});  // as the adaptor does
      if (auto const threshold = configuration.amount("alignment_threshold")) {
        alignment_threshold_ =
          threshold->is_absolute() ? threshold->bytes(0, 0) : std::numeric_limits<std::size_t>::max();
      }
    }
  }

  /// Ends the resource if nothing uses it. Requires that its state was `closing_state`, of the phase `closing`.
  void end_if_unused(std::uint64_t closing_state) noexcept
  {
    if (uses_.sum() != 0 || !state_.compare_exchange_strong(closing_state, closing_state + 1)) { return; }
    if (!may_use_cuda()) { return; }  // the process's end frees its memory
    {
      rmm::detail::device_scope const on_device{device_};
      made_.reset();
    }
    state_.store(closing_state + 2);
    std::lock_guard<std::mutex> const lock{rmm_c::list_mutex()};
    next_gone_ = first_gone;
    first_gone = this;
  }

  static inline rmm_c_resource* first_gone{nullptr};

  std::atomic<std::uint64_t> state_{static_cast<std::uint64_t>(phase::gone)};
  rmm::mr::device_memory_resource* memory_{nullptr};
  int device_{-1};
  std::uint32_t generation_{0};
  std::size_t alignment_{0};
  std::size_t alignment_threshold_{0};
  bool is_permanent_{false};
  rmm_c_resource* next_gone_{nullptr};
  std::optional<rmm::mr::configured_resource> made_;
  rmm_c::live_blocks uses_;
};

namespace {

rmm::mr::resource_configuration configuration_of(char const* text)
{
  using rmm::mr::resource_configuration;
  if (text != nullptr) { return resource_configuration::parse(text); }
  auto const chosen = resource_configuration::from_environment();
  return chosen ? *chosen : resource_configuration::parse("recommended");
}

/// Returns the figures of a configured resource, or nothing if it has none.
std::optional<rmm::heap_figures> figures_of(rmm::mr::configured_resource const& resource)
{
  using memory = rmm::mr::device_memory_resource;
  using rmm::mr::detail::resource_kind;
  auto const figures = [](auto const* part) {
    return part != nullptr ? std::optional<rmm::heap_figures>{part->figures()} : std::nullopt;
  };
  switch (resource.configuration().kind()) {
    case resource_kind::binning:
      return figures(resource.find<rmm::mr::binning_memory_resource<memory>>());
    case resource_kind::pinned_pool:
      return figures(resource.find<rmm::mr::pinned_pool_memory_resource>());
    default:
      return figures(resource.find<rmm::mr::detail::suballocator>());
  }
}

rmm_c_figures to_c(rmm::heap_figures const& from) noexcept
{
  rmm_c_figures to{};
  to.live_bytes              = from.live_bytes;
  to.free_bytes              = from.free_bytes;
  to.graph_bytes             = from.graph_bytes;
  to.cached_bytes            = from.cached_bytes;
  to.reserved_bytes          = from.reserved_bytes;
  to.largest_free_bytes      = from.largest_free_bytes;
  to.upstream_blocks         = from.upstream_blocks;
  to.caches                  = from.caches;
  to.from_other_streams      = from.from_other_streams;
  to.from_other_caches       = from.from_other_caches;
  to.coalesced               = from.put_together;
  to.device_synchronizations = from.device_synchronizations;
  to.failures                = from.recovery.failures;
  return to;
}

/// Whether the outermost pool of a configuration has the option `tags`. Only pools can have it.
[[nodiscard]] bool tracks_tags(rmm::mr::resource_configuration const& configuration)
{
  using rmm::mr::detail::resource_kind;
  if (configuration.kind() != resource_kind::binning) { return configuration.has("tags"); }
  auto const below = configuration.upstream();
  return below && tracks_tags(*below);
}

/// Returns the live bytes of each tag, in descending order, or nothing if the outermost pool does not track tags.
[[nodiscard]] std::optional<std::vector<rmm::memory_report::holder>> holders_of(
  rmm::mr::configured_resource const& resource)
{
  if (!tracks_tags(resource.configuration())) { return std::nullopt; }
  auto const* const pool = resource.find<rmm::mr::detail::growing_pool>();
  return pool != nullptr ? std::make_optional(pool->live_by_tag_name()) : std::nullopt;
}

rmm_c_status no_resource() noexcept { return fail(RMM_C_INVALID_ARGUMENT, "the resource is a null pointer"); }

/// Trims the outermost pool of a resource, and what that pool has its memory from. Returns what the last of them gave back, or nothing if
/// none can give memory back.
[[nodiscard]] std::optional<std::size_t> trim(rmm::mr::configured_resource const& resource, std::size_t keep_bytes)
{
  using pool           = rmm::mr::pool_memory_resource<rmm::mr::device_memory_resource>;  // is no trimmable_resource
  auto* const outer    = resource.find<rmm::mr::detail::suballocator>();
  auto* const plain    = dynamic_cast<pool*>(outer);
  auto* const trimming = dynamic_cast<rmm::mr::trimmable_resource*>(outer);
  if (trimming != nullptr) { return trimming->trim_to(keep_bytes); }
  if (outer != nullptr && plain == nullptr) { return std::nullopt; }  // an arena or a resource of fixed size
  std::optional<std::size_t> given;
  if (plain != nullptr) { given = plain->trim_to(keep_bytes); }
  if (auto* const below = resource.find<rmm::mr::trimmable_resource>()) { given = below->trim_to(keep_bytes); }
  return given;
}

}  // namespace

rmm_c::use_of_resource::use_of_resource(rmm_c_resource& resource) noexcept : resource_{resource}
{
  resource_.add_use();
}

rmm_c::use_of_resource::~use_of_resource() { resource_.remove_use(); }

rmm_c_status rmm_c::use_of_resource::check_usable() const noexcept { return resource_.check_usable(); }

void rmm_c::make_permanent(rmm_c_resource& resource) noexcept { resource.make_permanent(); }

int rmm_c::known_device(int device)
{
  if (device == RMM_C_CURRENT_DEVICE) { return rmm::detail::known_current_device(); }
  int count{0};
  RMM_CUDA_TRY(cudaGetDeviceCount(&count));
  if (device < 0 || device >= count) {
    throw rmm::out_of_range{"there is no device " + std::to_string(device) + "; the process sees " +
                            std::to_string(count)};
  }
  return device;
}

rmm_c_status rmm_c_resource_create(char const* configuration, int device, rmm_c_resource** resource) noexcept
{
  if (resource == nullptr) { return fail(RMM_C_INVALID_ARGUMENT, "the pointer to the resource is a null pointer"); }
  *resource = nullptr;
  if (auto const status = rmm_c::check_may_begin_to_use_cuda()) { return status; }
  return guarded(
    [&] {
      *resource = rmm_c_resource::make(configuration_of(configuration), rmm_c::known_device(device));
      return RMM_C_OK;
    },
    activity::making_a_resource);
}

rmm_c_status rmm_c_resource_destroy(rmm_c_resource* resource) noexcept
{
  if (resource == nullptr) { return RMM_C_OK; }
  if (resource->close()) { return RMM_C_OK; }
  return fail(RMM_C_MISUSE, "the resource was given up before, or is one of rmm_c_default_resource()");
}

rmm_c_status rmm_c_resource_allocate(
  rmm_c_resource* resource, size_t bytes, size_t alignment, void* stream, void** block) noexcept
{
  if (block == nullptr) { return fail(RMM_C_INVALID_ARGUMENT, "the pointer to the block is a null pointer"); }
  *block = nullptr;
  if (resource == nullptr) { return no_resource(); }
  rmm_c_resource::use use{*resource};
  if (auto const status = resource->check_usable()) { return status; }
  if (!resource->has_alignment(alignment, bytes)) {
    return fail(RMM_C_INVALID_ARGUMENT, "the alignment is not a power of two, or more than the resource guarantees");
  }
  if (bytes == 0) { return RMM_C_OK; }
  return guarded([&] {
    rmm::detail::device_scope const on_device{resource->device()};
    *block = resource->memory().allocate(bytes, to_stream(stream));
    use.keep();
    return RMM_C_OK;
  });
}

void rmm_c_resource_deallocate(
  rmm_c_resource* resource, void* block, size_t bytes, size_t /*alignment*/, void* stream) noexcept
{
  if (block == nullptr) { return; }
  if (resource == nullptr) { return static_cast<void>(no_resource()); }
  if (!resource->may_use_cuda()) { return; }
  if (!resource->takes_blocks()) {
    return static_cast<void>(fail(RMM_C_MISUSE, "all blocks of the resource were given back already"));
  }
  static_cast<void>(guarded([&] {
    rmm::detail::device_scope const on_device{resource->device()};
    resource->memory().deallocate(block, bytes, to_stream(stream));
    return RMM_C_OK;
  }));
  resource->remove_use();
}

rmm_c_status rmm_c_resource_trim(rmm_c_resource* resource, size_t keep_bytes, size_t* released_bytes) noexcept
{
  if (released_bytes != nullptr) { *released_bytes = 0; }
  if (resource == nullptr) { return no_resource(); }
  rmm_c_resource::use const use{*resource};
  if (auto const status = resource->check_usable()) { return status; }
  return guarded([&] {
    rmm::detail::device_scope const on_device{resource->device()};
    auto const released = trim(resource->configured(), keep_bytes);
    if (!released) { return fail(RMM_C_NOT_SUPPORTED, "the resource cannot give memory back"); }
    if (released_bytes != nullptr) { *released_bytes = *released; }
    return RMM_C_OK;
  });
}

int rmm_c_resource_device(rmm_c_resource const* resource) noexcept
{
  return resource != nullptr ? resource->device() : RMM_C_CURRENT_DEVICE;
}

rmm_c_status rmm_c_resource_figures(rmm_c_resource* resource, rmm_c_figures* figures) noexcept
{
  if (!rmm_c::can_be_written(figures)) {
    return fail(RMM_C_INVALID_ARGUMENT, "the figures are a null pointer, or their size is not set");
  }
  rmm_c::write_known_part(figures, rmm_c_figures{});
  if (resource == nullptr) { return no_resource(); }
  rmm_c_resource::use const use{*resource};
  if (auto const status = resource->check_usable()) { return status; }
  return guarded([&] {
    rmm::detail::device_scope const on_device{resource->device()};
    auto const found  = figures_of(resource->configured());
    auto known        = found ? to_c(*found) : rmm_c_figures{};
    known.live_blocks = resource->live_blocks();
    rmm_c::write_known_part(figures, known);
    return found ? RMM_C_OK : fail(RMM_C_NOT_SUPPORTED, "the resource has no figures");
  });
}

rmm_c_status rmm_c_resource_visit_tags(rmm_c_resource* resource,
                                       void (*visit)(void*, char const*, uint64_t, uint64_t),
                                       void* argument) noexcept
{
  if (visit == nullptr) { return fail(RMM_C_INVALID_ARGUMENT, "the function to call is a null pointer"); }
  if (resource == nullptr) { return no_resource(); }
  return guarded([&] {
    std::optional<std::vector<rmm::memory_report::holder>> found;
    {  // the use ends before the calls, because they may give the resource up and ask for its figures
      rmm_c_resource::use const use{*resource};
      if (auto const status = resource->check_usable()) { return status; }
      rmm::detail::device_scope const on_device{resource->device()};
      found = holders_of(resource->configured());
    }
    if (!found) { return fail(RMM_C_NOT_SUPPORTED, "the outermost pool lacks the option `tags`, or there is no pool"); }
    for (auto const& each : *found) { visit(argument, each.tag.c_str(), each.bytes, each.allocations); }
    return RMM_C_OK;
  });
}
