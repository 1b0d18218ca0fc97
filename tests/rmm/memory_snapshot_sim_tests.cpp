// SPDX-License-Identifier: Apache-2.0
//
// Snapshots of pools, compared with the program's allocations, and as JSON.

#include <rmm/memory_snapshot.hpp>

#include "../support/graph.hpp"
#include "../support/seeds.hpp"
#include "../support/simulated.hpp"
#include "../support/worker.hpp"

#include <rmm/aligned.hpp>
#include <rmm/capture_scope.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cached_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/tag_scope.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using rmm::memory_snapshot;
using state = memory_snapshot::state;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

struct MemorySnapshot : FreshMachine {
  rmm::mr::cuda_memory_resource cuda;
  rmm::cuda_stream stream;

  void TearDown() override
  {
    {
      rmm::cuda_stream const ends{std::move(stream)};
    }
    Simulated::TearDown();
  }
};

struct allocation {
  std::size_t bytes{};
  std::size_t stream{};
  std::string tag;
};
using allocations = std::map<std::uintptr_t, allocation>;

/// Checks the invariants of a snapshot of a pool without graphs.
void expect_whole(memory_snapshot const& now)
{
  EXPECT_EQ(now.bytes_of(state::live), now.figures.live_bytes);
  EXPECT_EQ(now.bytes_of(state::free) + now.bytes_of(state::cached), now.figures.free_bytes);
  EXPECT_EQ(now.bytes_of(state::cached), now.figures.cached_bytes);
  EXPECT_EQ(now.bytes_of(state::graph), now.figures.graph_bytes);
  std::uintptr_t end_of_last{};
  std::size_t blocks{};
  for (auto const& block : now.blocks) {
    EXPECT_GE(block.address, end_of_last);
    end_of_last = block.address + block.bytes;
    auto at     = block.address;
    for (auto const& range : block.ranges) {
      ASSERT_EQ(range.address, at);
      ASSERT_NE(range.bytes, 0U);
      at += range.bytes;
    }
    EXPECT_LE(at, end_of_last);
    EXPECT_LT(end_of_last - at, 256U);
    blocks += block.bytes;
  }
  EXPECT_EQ(blocks - now.bytes_of(state::unmapped), now.figures.reserved_bytes);
}

/// Expects that exactly the allocations are live. With `tags`, each is a range of its own.
void expect_live(memory_snapshot const& now, allocations const& live, bool tags)
{
  std::size_t sum{};
  for (auto const& [address, each] : live) {
    auto const bytes = rmm::align_up(each.bytes, 256);
    bool found       = false;
    for (auto const& block : now.blocks) {
      for (auto const& range : block.ranges) {
        if (range.what != state::live || address < range.address || address >= range.address + range.bytes) {
          continue;
        }
        EXPECT_LE(address + bytes, range.address + range.bytes);
        found = !tags || (range.address == address && range.bytes == bytes && each.tag == range.label.name());
      }
    }
    ASSERT_TRUE(found) << each.bytes << " bytes, tag " << each.tag;
    sum += bytes;
  }
  EXPECT_EQ(now.figures.live_bytes, sum);
}

/// Allocates and frees at random on three streams and two threads, and checks snapshots in between.
template <class Pool>
void run_random_program(Pool& mr, std::uint64_t seed, std::size_t largest, bool tags)
{
  std::mt19937_64 random{seed};
  std::array<rmm::cuda_stream, 3> const streams;
  std::array<char const*, 3> const names{"", "model", "a \"quoted\"\n\\name"};
  rmm::test::worker other;
  allocations live;
  auto const step = [&] {
    if (live.empty() || random() % 5 < 3) {
      std::size_t const bytes = 1 + random() % (random() % 8 == 0 ? largest : 4 * KiB);
      auto const on           = random() % streams.size();
      auto const* const name  = names[random() % names.size()];
      rmm::tag_scope const tag{name};
      try {
        live[reinterpret_cast<std::uintptr_t>(mr.allocate(bytes, streams[on]))] = {bytes, on, name};
      } catch (rmm::out_of_memory const&) {
        return;
      }
    } else {
      auto const which = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      mr.deallocate(reinterpret_cast<void*>(which->first), which->second.bytes, streams[which->second.stream]);
      live.erase(which);
    }
  };
  for (int i = 0; i < 400 && !::testing::Test::HasFailure(); ++i) {
    if (random() % 4 == 0) {
      other.run(step);
    } else {
      step();
    }
    if (i % 20 != 0) { continue; }
    auto const now = mr.snapshot();
    expect_whole(now);
    expect_live(now, live, tags);
  }
  for (auto const& [address, each] : live) {
    mr.deallocate(reinterpret_cast<void*>(address), each.bytes, streams[each.stream]);
  }
  expect_whole(mr.snapshot());
  expect_live(mr.snapshot(), {}, tags);
}

TEST_F(MemorySnapshot, ShowsWhatARandomProgramHasInAPool)
{
  rmm::test::for_each_seed(6, [&](std::uint64_t seed) {
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 1 * MiB + 100 * 256, 16 * MiB};
    bool const tags = seed % 2 == 0;
    mr.track_tags(tags);
    run_random_program(mr, seed, 256 * KiB, tags);
  });
}

TEST_F(MemorySnapshot, ShowsWhatARandomProgramHasInAnElasticPool)
{
  rmm::test::for_each_seed(6, [&](std::uint64_t seed) {
    rmm::mr::elastic_pool_memory_resource mr{0, 64 * MiB};
    bool const tags = seed % 2 == 0;
    mr.track_tags(tags);
    run_random_program(mr, seed, 4 * MiB, tags);
  });
}

TEST_F(MemorySnapshot, ShowsWhatARandomProgramHasInAFrontCacheAndAnArena)
{
  rmm::test::for_each_seed(2, [&](std::uint64_t seed) {
    rmm::mr::cuda_async_memory_resource async;
    rmm::mr::cached_memory_resource<rmm::mr::cuda_async_memory_resource> cached{&async, 0, std::nullopt, 1 * MiB};
    run_random_program(cached, seed, 256 * KiB, false);
    rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> arena{&cuda, 8 * MiB};
    run_random_program(arena, seed, 256 * KiB, false);
  });
}

TEST_F(MemorySnapshot, OfBinsHasThoseThatAreTheirOwn)
{
  rmm::mr::binning_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda};
  rmm::mr::fixed_size_memory_resource<rmm::mr::cuda_memory_resource> given{&cuda, 64 * KiB, 4};
  mr.add_bin(4 * KiB);
  mr.add_bin(16 * KiB);
  mr.add_bin(64 * KiB, &given);
  void* const small = mr.allocate(1000, stream);
  void* const large = mr.allocate(10'000, stream);
  void* const other = mr.allocate(60'000, stream);
  auto const now    = mr.snapshot();
  expect_whole(now);
  EXPECT_EQ(now.blocks.size(), 2U);
  EXPECT_EQ(now.bytes_of(state::live), 20 * KiB);
  EXPECT_EQ(given.snapshot().bytes_of(state::live), 64 * KiB);
  mr.deallocate(small, 1000, stream);
  mr.deallocate(large, 10'000, stream);
  mr.deallocate(other, 60'000, stream);
}

TEST_F(MemorySnapshot, NamesTheStreamsOfFreeMemory)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 4 * MiB};
  unsigned long long id{};
  ASSERT_EQ(cudaStreamGetId(stream.value(), &id), cudaSuccess);
  void* const ptr = mr.allocate(256, stream);
  auto const find = [&](memory_snapshot const& now) {
    for (auto const& range : now.blocks.at(0).ranges) {
      if (range.address == reinterpret_cast<std::uintptr_t>(ptr)) { return range; }
    }
    return memory_snapshot::range{};
  };
  EXPECT_EQ(find(mr.snapshot()).what, state::live);
  mr.deallocate(ptr, 256, stream);
  auto const freed = find(mr.snapshot());
  EXPECT_EQ(freed.what, state::cached);
  EXPECT_EQ(freed.stream, id + 1);
  EXPECT_TRUE(freed.is_pending);
}

TEST_F(MemorySnapshot, ShowsMemoryOfAnEndedThreadOutsideOfCaches)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 4 * MiB};
  rmm::test::run_on_a_thread_that_ends([&] { mr.deallocate(mr.allocate(256, stream), 256, stream); });
  auto const now = mr.snapshot();
  expect_whole(now);
  EXPECT_EQ(now.bytes_of(state::cached), 0U);
  EXPECT_EQ(now.bytes_of(state::free), 4 * MiB);
}

TEST_F(MemorySnapshot, ShowsMemoryKeptForGraphs)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 8 * MiB};
  rmm::cuda_stream const capturing{rmm::cuda_stream::flags::non_blocking};
  void* stays{};
  {
    rmm::graph_memory const memory;
    auto const made = rmm::test::capture(capturing, cudaStreamCaptureModeGlobal, [&] {
      rmm::capture_scope const scope{capturing, memory};
      stays            = mr.allocate(1000, capturing);
      void* const goes = mr.allocate(64 * KiB, capturing);
      mr.deallocate(goes, 64 * KiB, capturing);
    });
    auto const now  = mr.snapshot();
    expect_whole(now);
    EXPECT_GE(now.bytes_of(state::graph), 64 * KiB);
    EXPECT_EQ(now.bytes_of(state::live), 1 * KiB);
  }
  mr.deallocate(stays, 1000, stream);
}

TEST_F(MemorySnapshot, OfAnElasticPoolHasItsGaps)
{
  rmm::mr::elastic_pool_memory_resource mr;
  auto const chunk  = mr.chunk_bytes();
  void* const first = mr.allocate(chunk, stream);
  void* const gone  = mr.allocate(2 * chunk, stream);
  void* const last  = mr.allocate(chunk, stream);
  mr.deallocate(gone, 2 * chunk, stream);
  stream.synchronize();
  ASSERT_EQ(mr.trim_to(0), 2 * chunk);
  auto const now = mr.snapshot();
  expect_whole(now);
  ASSERT_EQ(now.blocks.size(), 1U);
  EXPECT_EQ(now.figures.upstream_blocks, 2U);
  ASSERT_EQ(now.blocks[0].ranges.size(), 3U);
  EXPECT_EQ(now.blocks[0].ranges[1].what, state::unmapped);
  EXPECT_EQ(now.blocks[0].ranges[1].bytes, 2 * chunk);
  mr.deallocate(first, chunk, stream);
  mr.deallocate(last, chunk, stream);
}

TEST_F(MemorySnapshot, OfAnElasticPoolShowsWhichPartsArePaused)
{
  rmm::mr::elastic_pool_memory_resource mr;
  rmm::tag const kv{"kv-cache"};
  mr.track_tags();
  mr.set_pausable(kv);
  void* const plain = mr.allocate(1 * MiB, stream);
  void* paused{};
  {
    rmm::tag_scope const scope{kv};
    paused = mr.allocate(1 * MiB, stream);
  }
  mr.pause(kv);
  auto const now = mr.snapshot();
  expect_whole(now);
  ASSERT_EQ(now.blocks.size(), 2U);
  for (auto const& block : now.blocks) {
    bool const is_part = block.address == reinterpret_cast<std::uintptr_t>(paused);
    EXPECT_EQ(block.is_paused, is_part);
    EXPECT_EQ(block.ranges.at(0).label, is_part ? kv : rmm::tag{});
  }
  mr.resume(kv);
  mr.deallocate(plain, 1 * MiB, stream);
  mr.deallocate(paused, 1 * MiB, stream);
}

TEST_F(MemorySnapshot, ShowsWhatWasAllocatedBeforeTagsWereTracked)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 4 * MiB};
  void* const before = mr.allocate(1000, stream);
  mr.track_tags();
  rmm::tag_scope const tag{"later"};
  void* const after = mr.allocate(300, stream);
  auto const now    = mr.snapshot();
  expect_whole(now);
  EXPECT_EQ(now.bytes_of(state::live), 1024U + 512U);
  mr.deallocate(before, 1000, stream);
  mr.deallocate(after, 300, stream);
}

TEST(MemorySnapshotMaker, DropsTheUnusableEndOfABlock)
{
  memory_snapshot::maker made;
  made.add({{{0x10000, 1000}}, {{{0x10100, 256}}}}, {});
  auto const now = made.finish();
  ASSERT_EQ(now.blocks.size(), 1U);
  EXPECT_EQ(now.blocks[0].bytes, 1000U);
  EXPECT_EQ(now.bytes_of(state::live), 512U);
  EXPECT_EQ(now.bytes_of(state::free), 256U);
}

TEST_F(MemorySnapshot, IsWholeWhileOthersAllocate)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 4 * MiB};
  mr.track_tags();
  std::atomic<bool> ends{false};
  auto const work = [&] {
    rmm::cuda_stream const own;
    rmm::tag_scope const tag{"thread"};
    for (std::size_t bytes = 256; !ends.load(); bytes = bytes % (64 * KiB) + 256) {
      mr.deallocate(mr.allocate(bytes, own), bytes, own);
    }
  };
  std::thread first{work};
  std::thread second{work};
  for (int i = 0; i < 50; ++i) { expect_whole(mr.snapshot()); }
  ends = true;
  first.join();
  second.join();
}

TEST_F(MemorySnapshot, DoesNotChangeAfterItWasTaken)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 1 * MiB};
  auto const before = std::chrono::system_clock::now();
  auto const now    = mr.snapshot();
  EXPECT_LE(before, now.time);
  EXPECT_LE(now.time, std::chrono::system_clock::now());
}

/// A strict parser of JSON. It calls its members in the order of the text.
class json_reader {
 public:
  explicit json_reader(std::string_view text) : text_{text} {}

  /// Returns the text of each value that is neither a list nor an object, by its path: `blocks/0/ranges/1/bytes`.
  [[nodiscard]] std::optional<std::map<std::string, std::string>> read()
  {
    if (!value("") || at_ != text_.size()) { return std::nullopt; }
    return values_;
  }

 private:
  [[nodiscard]] bool next(char wanted)
  {
    skip();
    bool const is_it = at_ < text_.size() && text_[at_] == wanted;
    at_ += is_it ? 1 : 0;
    skip();
    return is_it;
  }
  void skip()
  {
    while (at_ < text_.size() && text_[at_] == ' ') { ++at_; }
  }
  [[nodiscard]] static std::string below(std::string const& path, std::string const& name)
  {
    return path.empty() ? name : path + "/" + name;
  }

  [[nodiscard]] bool value(std::string const& path)
  {
    std::string text;
    if (next('{')) {
      if (next('}')) { return true; }
      do {
        std::string name;
        if (!string(name) || !next(':') || !value(below(path, name))) { return false; }
      } while (next(','));
      return next('}');
    }
    if (next('[')) {
      if (next(']')) { return true; }
      std::size_t count{};
      do {
        if (!value(below(path, std::to_string(count++)))) { return false; }
      } while (next(','));
      return next(']');
    }
    if (at_ < text_.size() && text_[at_] == '"') { return string(text) && values_.emplace(path, text).second; }
    auto const length = std::min(text_.find_first_of(",]} ", at_), text_.size()) - at_;
    text              = text_.substr(at_, length);
    at_ += length;
    char* end{};
    static_cast<void>(std::strtod(text.c_str(), &end));
    bool const is_number = !text.empty() && *end == '\0';
    return (is_number || text == "true") && values_.emplace(path, text).second;
  }

  [[nodiscard]] bool string(std::string& text)
  {
    if (at_ >= text_.size() || text_[at_++] != '"') { return false; }
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) { return false; }
      if (text_[at_] != '\\') {
        text += text_[at_];
      } else if (text_[++at_] == 'u') {
        text += static_cast<char>(std::stoi(std::string{text_.substr(at_ + 1, 4)}, nullptr, 16));
        at_ += 4;
      } else {
        text += text_[at_];
      }
    }
    return at_++ < text_.size();
  }

  std::string_view text_;
  std::size_t at_{};
  std::map<std::string, std::string> values_;
};

TEST_F(MemorySnapshot, IsValidJsonAndUtf8ForAnyTagNames)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 4 * MiB};
  mr.track_tags();
  rmm::tag_scope const scope{"caf\xC3\xA9 \xFF"};
  void* const ptr = mr.allocate(1000, stream);
  auto const json = mr.snapshot().to_json();
  EXPECT_NE(json.find("\"tag\": \"caf\xC3\xA9 \xEF\xBF\xBD\""), std::string::npos) << json;
  mr.deallocate(ptr, 1000, stream);
}

TEST_F(MemorySnapshot, SurvivesAJsonRoundTrip)
{
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> mr{&cuda, 4 * MiB};
  mr.track_tags();
  void* ptr{};
  std::string const name = "a \"quoted\"\n\\name";
  {
    rmm::tag_scope const scope{name};
    ptr = mr.allocate(1000, stream);
  }
  mr.deallocate(mr.allocate(512, rmm::cuda_stream_legacy), 512, rmm::cuda_stream_legacy);
  auto const now  = mr.snapshot();
  auto const read = json_reader{now.to_json()}.read();
  ASSERT_TRUE(read) << now.to_json();
  auto const number = [&](std::string const& path) { return std::strtoull(read->at(path).c_str(), nullptr, 0); };
  EXPECT_EQ(number("live_bytes"), now.figures.live_bytes);
  EXPECT_EQ(number("free_bytes"), now.figures.free_bytes);
  EXPECT_EQ(number("cached_bytes"), now.figures.cached_bytes);
  EXPECT_EQ(number("largest_free_bytes"), now.figures.largest_free_bytes);
  EXPECT_NEAR(std::strtod(read->at("fragmentation").c_str(), nullptr), now.figures.fragmentation(), 1e-6);
  auto const& block = now.blocks.at(0);
  EXPECT_EQ(number("blocks/0/address"), block.address);
  EXPECT_EQ(number("blocks/0/bytes"), block.bytes);
  bool legacy = false;
  for (std::size_t i = 0; i < block.ranges.size(); ++i) {
    auto const path   = "blocks/0/ranges/" + std::to_string(i);
    auto const& range = block.ranges[i];
    EXPECT_EQ(number(path + "/offset"), range.address - block.address);
    EXPECT_EQ(number(path + "/bytes"), range.bytes);
    EXPECT_EQ(read->at(path + "/state"), memory_snapshot::name_of(range.what));
    EXPECT_EQ(read->count(path + "/pending"), range.is_pending ? 1U : 0U);
    EXPECT_EQ(read->count(path + "/tag"), range.label ? 1U : 0U);
    if (range.label) { EXPECT_EQ(read->at(path + "/tag"), name); }
    legacy = legacy || (read->count(path + "/stream") != 0 && read->at(path + "/stream") == "legacy");
  }
  EXPECT_TRUE(legacy);
  mr.deallocate(ptr, 1000, stream);
}

TEST_F(MemorySnapshot, NamesAllStatesAndStreamsInItsJson)
{
  memory_snapshot made;
  made.blocks.push_back({0x1000, 5 * 256, false, {}});
  auto const add = [&](state what, std::uint64_t on, bool is_pending) {
    auto& ranges = made.blocks.front().ranges;
    ranges.push_back({0x1000 + 256 * ranges.size(), 256, what, on, is_pending, {}});
  };
  add(state::live, memory_snapshot::any_stream, false);
  add(state::free, memory_snapshot::legacy_stream, true);
  add(state::cached, 17, false);
  add(state::graph, memory_snapshot::any_stream, false);
  add(state::unmapped, memory_snapshot::any_stream, false);
  auto const json = made.to_json();
  for (auto const* const text :
       {R"({"offset": 0, "bytes": 256, "state": "live"})",
        R"({"offset": 256, "bytes": 256, "state": "free", "stream": "legacy", "pending": true})",
        R"({"offset": 512, "bytes": 256, "state": "cached", "stream": 17})",
        R"({"offset": 768, "bytes": 256, "state": "graph"})",
        R"({"offset": 1024, "bytes": 256, "state": "unmapped"})"}) {
    EXPECT_NE(json.find(text), std::string::npos) << text << " in " << json;
  }
}

}  // namespace
