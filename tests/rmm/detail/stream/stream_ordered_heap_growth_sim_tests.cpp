// SPDX-License-Identifier: Apache-2.0
//
// Heaps whose memory comes and goes in chunks at fixed addresses, under the ordering checker. It reports chunks that leave while
// work uses them, and work on chunks that have left.

#include "../../../support/random_program.hpp"
#include "../../../support/seeds.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/detail/cuda/virtual_memory.hpp>
#include <rmm/detail/heap/address_range.hpp>
#include <rmm/detail/stream/stream_ordered_heap.hpp>
#include <rmm/detail/stream/stream_ordered_heap_validation.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace {

using rmm::detail::address_range;
using rmm::detail::address_reservation;
using rmm::detail::device_access;
using rmm::detail::leaving;
using rmm::detail::physical_memory;
using rmm::detail::stream_ordered_heap;
using rmm::test::for_each_seed;
using rmm::test::memory_source;
using rmm::test::random_program;

constexpr std::size_t chunk = std::size_t{2} << 20U;

/// A heap over reserved addresses, of which a limited number of chunks has memory.
class chunked_heap final : public memory_source {
 public:
  chunked_heap(int device, std::size_t addresses, std::size_t most_chunks)
    : range_{device, addresses * chunk}, access_{{device}}, mapped_(addresses), most_chunks_{most_chunks}
  {}

  ~chunked_heap() override
  {
    heap_.release_blocks(
      [&](void* block, std::size_t bytes) { range_.unmap(reinterpret_cast<std::uintptr_t>(block), bytes); });
  }

  [[nodiscard]] void* allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    try {
      if (void* const ptr = heap_.try_allocate(bytes, stream)) { return ptr; }
      if (grow((bytes + chunk - 1) / chunk)) {
        if (void* const ptr = heap_.try_allocate(bytes, stream)) { return ptr; }
      }
      return heap_.allocate_reclaimed(bytes, stream);
    } catch (std::bad_alloc const&) {
      return nullptr;
    }
  }

  void deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) noexcept override
  {
    heap_.deallocate(ptr, bytes, stream);
  }

  void check(std::size_t live, bool thoroughly) override
  {
    if (thoroughly) { EXPECT_TRUE(heap_.check_invariants()); }
    EXPECT_EQ(heap_.figures().live_bytes, live);
    EXPECT_EQ(heap_.block_bytes(), chunks() * chunk);
    EXPECT_EQ(cudasim::usage(range_.device()).physical, chunks() * chunk);
    std::size_t in_blocks = 0;
    for (auto const& block : heap_.blocks()) { in_blocks += block.bytes; }
    EXPECT_EQ(in_blocks, chunks() * chunk);
  }

  void check_refusal(std::size_t bytes) override { EXPECT_LT(heap_.figures().largest_free_bytes, bytes); }

  /// Gives some free chunks back: either those that no work uses, or any after a wait of the device or the host.
  void rearrange(std::mt19937_64& random) override
  {
    try {
      if (random() % 4 == 0) { EXPECT_TRUE(heap_.wait_for_all()); }
      std::vector<address_range> wanted;
      for (auto const& run : heap_.free_runs()) { add_some_chunks(wanted, run, random); }
      bool const waits = random() % 2 == 0;
      auto const taken = heap_.withdraw(wanted, waits ? leaving::after_a_wait : leaving::at_once, waiter_);
      if (waits) { waiter_.synchronize(); }
      EXPECT_TRUE(std::includes(
        wanted.begin(), wanted.end(), taken.begin(), taken.end(), [](auto a, auto b) { return a.begin < b.begin; }));
      for (auto const& each : taken) {
        range_.unmap(each.begin, each.bytes);
        mark(each, false);
        left_ += each.bytes / chunk;
      }
      refused_ += wanted.size() - taken.size();
    } catch (std::bad_alloc const&) {}
  }

  /// Returns how many chunks have left.
  [[nodiscard]] std::size_t left() const noexcept { return left_; }
  [[nodiscard]] std::size_t refused() const noexcept { return refused_; }

 private:
  [[nodiscard]] std::size_t chunks() const
  {
    return static_cast<std::size_t>(std::count(mapped_.begin(), mapped_.end(), true));
  }

  void mark(address_range range, bool is_mapped)
  {
    auto const first = static_cast<std::ptrdiff_t>((range.begin - range_.begin()) / chunk);
    auto const count = static_cast<std::ptrdiff_t>(range.bytes / chunk);
    std::fill(mapped_.begin() + first, mapped_.begin() + first + count, is_mapped);
  }

  /// Maps `count` chunks at the first addresses where so many in a row are not mapped.
  [[nodiscard]] bool grow(std::size_t count)
  {
    auto const hole = std::search_n(mapped_.begin(), mapped_.end(), static_cast<std::ptrdiff_t>(count), false);
    if (hole == mapped_.end() || chunks() + count > most_chunks_) { return false; }
    auto const first = static_cast<std::size_t>(hole - mapped_.begin());
    address_range const added{range_.begin() + first * chunk, count * chunk};
    for (std::size_t i = 0; i < count; ++i) {
      range_.map(added.begin + i * chunk, physical_memory{range_.device(), chunk});
    }
    range_.set_access(added.begin, added.bytes, access_);
    heap_.extend(added);
    mark(added, true);
    return true;
  }

  static void add_some_chunks(std::vector<address_range>& wanted, address_range run, std::mt19937_64& random)
  {
    auto at        = (run.begin + chunk - 1) / chunk * chunk;
    auto const end = (run.begin + run.bytes) / chunk * chunk;
    while (at < end) {
      auto const count = 1 + random() % ((end - at) / chunk);
      if (random() % 2 == 0) { wanted.push_back({at, count * chunk}); }
      at += count * chunk;
    }
  }

  address_reservation range_;
  device_access access_;
  std::vector<bool> mapped_;
  std::size_t most_chunks_;
  rmm::cuda_stream waiter_{rmm::cuda_stream::flags::non_blocking};
  stream_ordered_heap heap_;
  std::size_t left_{};
  std::size_t refused_{};
};

struct HeapGrowth : Stepped {
  struct counts {
    std::size_t programs{};
    std::size_t left{};
    std::size_t refused{};
  };

  static counts run(std::uint64_t programs, random_program::options how, std::size_t addresses, std::size_t most_chunks)
  {
    counts all;
    how.rearranges = true;
    for_each_seed(programs, [&](std::uint64_t seed) {
      begin(seed);
      std::vector<std::unique_ptr<memory_source>> sources;
      sources.push_back(std::make_unique<chunked_heap>(0, addresses, most_chunks));
      random_program program{seed, how, std::move(sources)};
      program.run();
      auto const& heap = static_cast<chunked_heap&>(program.source());
      ++all.programs;
      all.left += heap.left();
      all.refused += heap.refused();
    });
    return all;
  }
};

TEST_F(HeapGrowth, GivesUnusedChunksBack)
{
  random_program::options how;
  how.largest     = 5 * chunk;
  how.most_live   = 60;
  auto const seen = run(40, how, 64, 48);
  EXPECT_GT(seen.left, seen.programs);
  EXPECT_GT(seen.refused, 0U) << "work was never in the way";
}

TEST_F(HeapGrowth, GivesChunksBackBetweenSmallBlocks)
{
  random_program::options how;
  how.threads     = 3;
  how.largest     = 400 * 1024;
  auto const seen = run(30, how, 32, 16);
  EXPECT_GT(seen.left, seen.programs);
}

TEST_F(HeapGrowth, GrowsWhileMemoryIsShort)
{
  random_program::options how;
  how.largest     = 3 * chunk;
  auto const seen = run(40, how, 16, 8);
  EXPECT_GT(seen.left, seen.programs);
}

}  // namespace
