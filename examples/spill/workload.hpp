// SPDX-License-Identifier: Apache-2.0
//
// What both programs of this folder do: queries over a table in partitions, of which each has a known content.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

constexpr std::size_t mib = std::size_t{1} << 20U;

struct settings {
  std::size_t partitions{40};
  std::size_t partition_bytes{4 * mib};
  std::size_t device_bytes{64 * mib};
  std::size_t pinned_bytes{64 * mib};
  std::size_t queries{100};
};

/// Reads [partitions] [MiB of a partition] [MiB on the device] [MiB of pinned memory] [queries].
inline settings settings_of(int argc, char** argv)
{
  settings s;
  std::size_t* const values[] = {&s.partitions, &s.partition_bytes, &s.device_bytes, &s.pinned_bytes, &s.queries};
  for (int i = 1; i < argc && i <= 5; ++i) {
    bool const is_size = i >= 2 && i <= 4;
    *values[i - 1]     = std::strtoull(argv[i], nullptr, 10) * (is_size ? mib : 1);
  }
  return s;
}

class stopwatch {
 public:
  [[nodiscard]] double seconds() const
  {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_{std::chrono::steady_clock::now()};
};

inline std::uint64_t word_at(std::size_t number, std::size_t offset) { return number * 0x9e3779b97f4a7c15U + offset; }

/// Writes the content of a partition.
inline void fill(char* bytes, std::size_t number, std::size_t count)
{
  for (std::size_t at = 0; at < count; at += sizeof(std::uint64_t)) {
    auto const word = word_at(number, at);
    std::memcpy(bytes + at, &word, sizeof word);
  }
}

/// Returns whether `count` bytes are those at an offset of a partition.
inline bool is_content(char const* bytes, std::size_t number, std::size_t offset, std::size_t count)
{
  for (std::size_t at = 0; at < count; at += sizeof(std::uint64_t)) {
    auto const word = word_at(number, offset + at);
    if (std::memcmp(bytes + at, &word, sizeof word) != 0) { return false; }
  }
  return true;
}

/// Runs the queries and prints their time. Each query reads four partitions: three from the hot fifth of the table, and one from the
/// whole table. Returns whether `table.query(partitions)` was always true.
template <class Table>
bool run_queries(settings const& s, char const* title, Table& table)
{
  std::mt19937_64 random{1};
  auto const draw = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  bool is_right   = true;
  stopwatch const time;
  for (std::size_t query = 0; query < s.queries; ++query) {
    std::vector<std::size_t> wanted{draw(s.partitions)};
    while (wanted.size() < 4) {
      auto const next = draw(std::max<std::size_t>(s.partitions / 5, 4));
      if (std::find(wanted.begin(), wanted.end(), next) == wanted.end()) { wanted.push_back(next); }
    }
    is_right = table.query(wanted) && is_right;
  }
  std::printf("%s: %zu queries in %.3f s, %.2f ms each\n",
              title,
              s.queries,
              time.seconds(),
              1e3 * time.seconds() / static_cast<double>(s.queries));
  return is_right;
}
