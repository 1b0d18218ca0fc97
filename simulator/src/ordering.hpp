// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cudasim {

/// For each stream, how much of its work is known to come before a certain point of the program.
///
/// Invariant: entries are sorted by stream and no stream occurs twice. Streams are never numbered twice, so a clock
/// outlives the streams in it.
class vector_clock {
 public:
  /// Whether operation `sequence` of `stream` comes before this point.
  [[nodiscard]] bool covers(std::uint64_t stream, std::uint64_t sequence) const noexcept;

  /// Adds all that `other` knows.
  void join(vector_clock const& other);

  /// Adds operation `sequence` of `stream` and all before it.
  void raise(std::uint64_t stream, std::uint64_t sequence);

  /// Removes what `known` covers as well. join() with `known` restores the meaning.
  void forget(vector_clock const& known);

  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> entries_;
};

/// Where an access was asked for: enough to tell a person which call of the program it was.
struct place {
  char const* what{""};       ///< name of the call or of the kernel; lives as long as the program
  std::uint64_t stream{0};    ///< id; 0 is the host
  std::uint64_t sequence{0};  ///< number of the operation on its stream
  void const* call_site{nullptr};
};

/// "cudaMemcpyAsync (operation 3 of stream 17, called from app+0x1234)"
[[nodiscard]] std::string describe(place const& where);

/// Detects conflicting uses of the same bytes that nothing orders.
///
/// Operations are added in the order of their submission, which agrees with the order that streams and events give. For
/// each byte the history keeps the last write and the reads since; a new access must come after conflicting ones.
///
/// Invariants:
///  I1  cells do not overlap, and no cell is empty
///  I2  of a cell, every read is after its write in the order of submission
class access_history {
 public:
  struct conflict {
    place earlier;
    bool earlier_writes;
    std::uintptr_t address;
  };

  /// Adds an access. Returns whether an earlier access conflicts with it, and which. `clock` covers what is known to
  /// come before the access, and the access itself.
  bool access(std::uintptr_t begin,
              std::size_t bytes,
              bool write,
              place const& where,
              vector_clock const& clock,
              conflict& found);

  /// Forgets all accesses to the bytes, which no longer belong to an allocation.
  void forget(std::uintptr_t begin, std::size_t bytes);

  void clear() { cells_.clear(); }

  [[nodiscard]] bool check_invariants() const;

 private:
  struct cell {
    std::uintptr_t end;
    bool written{false};
    place write;
    std::vector<place> reads;
  };
  using cells = std::map<std::uintptr_t, cell>;

  /// Makes `address` the border of two cells if it lies inside one.
  void split(std::uintptr_t address);

  cells cells_;
};

}  // namespace cudasim
