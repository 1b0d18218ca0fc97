// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/utf8.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/heap/heap_contents.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/tag_scope.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {

/// All memory of a pool at one moment, range by range. Use it to see what a pool holds and how it is fragmented. `snapshot()` of a pool
/// returns it; see docs/snapshots.md.
///
/// Adjacent allocations are one range, except that each allocation since track_tags() is a range by itself. Adjacent free memory is one
/// range if the state, the stream and is_pending are the same.
///
/// @code{.cpp}
/// rmm::mr::elastic_pool_memory_resource pool{std::size_t{2} << 20};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, pool};
/// auto const snapshot = pool.snapshot();
/// std::printf("%zu bytes are allocated\n", snapshot.bytes_of(rmm::memory_snapshot::state::live));
/// @endcode
struct memory_snapshot {
  enum class state : unsigned char {
    live,     ///< allocated
    free,     ///< free, for all threads
    cached,   ///< free, in the cache of one thread for one stream
    graph,    ///< free, and kept for CUDA graphs
    unmapped  ///< addresses without memory
  };

  /// Special numbers of streams. Others are the id of cudaStreamGetId() plus 1, as in traces.
  static constexpr std::uint64_t any_stream    = 0;
  static constexpr std::uint64_t legacy_stream = std::numeric_limits<std::uint64_t>::max();

  struct range {
    std::uintptr_t address{};
    std::size_t bytes{};
    state what{};

    /// For free memory: the stream that may use it immediately. Other streams have to wait for the work of that stream.
    std::uint64_t stream{any_stream};
    bool is_pending{false};  ///< whether other streams cannot wait for the last use yet, because no event follows it

    tag label{};  ///< the tag of an allocation, if the pool tracks tags
  };

  /// A block of upstream; for an elastic pool, all addresses from the first to the last one with memory.
  struct block {
    std::uintptr_t address{};
    std::size_t bytes{};
    bool is_paused{false};  ///< whether the pool has given the memory back and kept the addresses

    /// The ranges by address, without gaps. A rest of less than 256 bytes at the end of a block is in no range.
    std::vector<range> ranges;
  };

  std::chrono::system_clock::time_point time{};
  heap_figures figures{};     ///< the figures at the same moment
  std::vector<block> blocks;  ///< the blocks by address

  /// Returns the bytes in one state. `live` is figures.live_bytes, `graph` is figures.graph_bytes, and `free` and `cached` together are
  /// figures.free_bytes. One exception: free memory of CUDA graphs that cannot be reused before the pool has its whole chunk back is part
  /// of figures.graph_bytes, but `live` here.
  [[nodiscard]] std::size_t bytes_of(state what) const noexcept
  {
    std::size_t sum{};
    for (auto const& each : blocks) {
      for (auto const& part : each.ranges) { sum += part.what == what ? part.bytes : 0; }
    }
    return sum;
  }

  /// Adds the blocks and figures of `other`. The time becomes the later one.
  memory_snapshot& operator+=(memory_snapshot const& other)
  {
    blocks.insert(blocks.end(), other.blocks.begin(), other.blocks.end());
    detail::sort(blocks.begin(), blocks.end(), [](block const& a, block const& b) { return a.address < b.address; });
    figures = figures + other.figures;
    time    = detail::max(time, other.time);
    return *this;
  }

  /// Returns the snapshot as one line of JSON; docs/snapshots.md lists the names. Addresses of blocks are texts, because readers may round
  /// numbers in JSON. Addresses of ranges are offsets. Bytes in names of tags that are not UTF-8 become U+FFFD.
  [[nodiscard]] RMM_COLD std::string to_json() const
  {
    auto const nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
    std::string json       = "{\"version\": 1, \"time_ns\": " + std::to_string(nanoseconds);
    append_number(json, "live_bytes", figures.live_bytes);
    append_number(json, "free_bytes", figures.free_bytes);
    append_number(json, "graph_bytes", figures.graph_bytes);
    append_number(json, "cached_bytes", figures.cached_bytes);
    append_number(json, "reserved_bytes", figures.reserved_bytes);
    append_number(json, "largest_free_bytes", figures.largest_free_bytes);
    append_number(json, "upstream_blocks", figures.upstream_blocks);
    append_number(json, "caches", figures.caches);
    char fragmentation[48];
    auto const millionths = static_cast<long>(figures.fragmentation() * 1e6 + 0.5);  // no locale has a say in that
    std::snprintf(fragmentation,
                  sizeof fragmentation,
                  ", \"fragmentation\": %ld.%06ld",
                  millionths / 1'000'000,
                  millionths % 1'000'000);
    json += fragmentation;
    json += ", \"blocks\": [";
    char const* between = "";
    for (auto const& each : blocks) {
      json += between;
      append(json, each);
      between = ", ";
    }
    return json + "]}";
  }

  /// A builder of snapshots, for classes with heaps.
  class maker;

 private:
  static void append_number(std::string& json, char const* name, std::size_t number)
  {
    json.append(", \"").append(name).append("\": ").append(std::to_string(number));
  }

  static void append(std::string& json, block const& of)
  {
    char address[32];
    std::snprintf(address, sizeof address, "\"0x%llx\"", static_cast<unsigned long long>(of.address));
    json.append("{\"address\": ").append(address);
    append_number(json, "bytes", of.bytes);
    if (of.is_paused) { json += ", \"paused\": true"; }
    json += ", \"ranges\": [";
    char const* between = "";
    for (auto const& each : of.ranges) {
      json += between;
      append(json, each, each.address - of.address);
      between = ", ";
    }
    json += "]}";
  }

  static void append(std::string& json, range const& of, std::size_t offset)
  {
    json.append("{\"offset\": ").append(std::to_string(offset));
    append_number(json, "bytes", of.bytes);
    json.append(", \"state\": \"").append(name_of(of.what)).append("\"");
    if (of.stream == legacy_stream) {
      json += ", \"stream\": \"legacy\"";
    } else if (of.stream != any_stream) {
      json.append(", \"stream\": ").append(std::to_string(of.stream));
    }
    if (of.is_pending) { json += ", \"pending\": true"; }
    if (of.label) {
      json += ", \"tag\": \"";
      append_escaped(json, detail::valid_utf8(of.label.name()).c_str());
      json += "\"";
    }
    json += "}";
  }

  static void append_escaped(std::string& json, char const* text)
  {
    for (; *text != '\0'; ++text) {
      auto const code = static_cast<unsigned char>(*text);
      if (code < 0x20) {
        char escaped[8];
        std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(code));
        json += escaped;
      } else {
        if (*text == '"' || *text == '\\') { json += '\\'; }
        json += *text;
      }
    }
  }

 public:
  /// Returns the name of the enumerator, which is also its name in JSON.
  [[nodiscard]] static constexpr char const* name_of(state what) noexcept
  {
    switch (what) {
      case state::live:
        return "live";
      case state::free:
        return "free";
      case state::cached:
        return "cached";
      case state::graph:
        return "graph";
      case state::unmapped:
        return "unmapped";
    }
    return "";
  }
};

class memory_snapshot::maker {
 public:
  /// Records the live allocations. Call it before add(). `notes.for_each(visit)` has to call visit(pointer, number of its tag, bytes).
  template <class Notes>
  void note_tags(Notes const& notes)
  {
    notes.for_each([&](void const* ptr, std::uint32_t id, std::size_t bytes) {
      noted_.push_back(
        {reinterpret_cast<std::uintptr_t>(ptr), bytes, state::live, any_stream, false, tag::from_id(id)});
    });
    detail::sort(noted_.begin(), noted_.end(), [](range const& a, range const& b) { return a.address < b.address; });
  }

  /// How add() shows the blocks of a heap.
  struct view {
    bool in_one_space;  ///< as one block that includes the gaps
    bool is_paused;
  };

  /// Adds the memory of one heap. `counted` are its figures at the same moment.
  void add(detail::heap_contents const& contents, heap_figures const& counted, view how = {})
  {
    made_.figures      = made_.figures + counted;
    auto next          = contents.pieces.begin();
    bool const has_all = how.in_one_space && !contents.blocks.empty();
    if (has_all) { begin_block(contents.blocks.front().begin, how); }
    for (auto const& each : contents.blocks) {
      if (!has_all) { begin_block(each.begin, how); }
      add_range({at_, each.begin - at_, state::unmapped});
      auto const end = each.begin + align_down(each.bytes, detail::heap_granule);
      for (; next != contents.pieces.end() && next->range.begin < end; ++next) {
        add_live(next->range.begin);
        add_range({next->range.begin, next->range.bytes, state_of(next->where), next->stream, !next->is_fenced});
      }
      add_live(end);
      made_.blocks.back().bytes = each.end() - made_.blocks.back().address;
    }
  }

  /// Returns the snapshot, with the time of this call. No other call may follow.
  [[nodiscard]] memory_snapshot finish()
  {
    memory_snapshot all;
    all.time = std::chrono::system_clock::now();
    made_ += all;  // puts the blocks in order
    return std::move(made_);
  }

 private:
  [[nodiscard]] static constexpr state state_of(detail::free_piece::place where) noexcept
  {
    switch (where) {
      case detail::free_piece::place::cache:
        return state::cached;
      case detail::free_piece::place::graphs:
        return state::graph;
      case detail::free_piece::place::store:
        break;
    }
    return state::free;
  }

  void begin_block(std::uintptr_t address, view how)
  {
    at_ = address;
    made_.blocks.push_back({address, 0, how.is_paused, {}});
  }

  /// Adds live ranges up to `end`.
  void add_live(std::uintptr_t end)
  {
    auto const before = [](range const& each, std::uintptr_t address) { return each.address < address; };
    for (auto note = detail::lower_bound(noted_.begin(), noted_.end(), at_, before);
         note != noted_.end() && note->address < end;
         ++note) {
      add_range({at_, note->address - at_, state::live});
      auto mine  = *note;
      mine.bytes = detail::min(align_up(note->bytes, detail::heap_granule), end - note->address);
      auto& into = made_.blocks.back().ranges;
      into.push_back(mine);  // not joined with its neighbours
      at_ += mine.bytes;
    }
    add_range({at_, end - at_, state::live});
  }

  void add_range(range const& added)
  {
    if (added.bytes == 0) { return; }
    auto& into = made_.blocks.back().ranges;
    if (!into.empty() && is_alike(into.back(), added)) {
      into.back().bytes += added.bytes;
    } else {
      into.push_back(added);
    }
    at_ += added.bytes;
  }

  [[nodiscard]] static bool is_alike(range const& a, range const& b) noexcept
  {
    return a.what == b.what && a.what != state::live && a.stream == b.stream && a.is_pending == b.is_pending;
  }

  memory_snapshot made_;
  std::uintptr_t at_{};       // where the next range begins
  std::vector<range> noted_;  // allocations
};

}  // namespace RMM_NAMESPACE
