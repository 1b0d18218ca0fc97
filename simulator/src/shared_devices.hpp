// SPDX-License-Identifier: Apache-2.0
#pragma once

/// @file
/// Devices that several processes use: a file tells each of them what the others took. This file knows neither CUDA nor
/// the world; the caller serialises.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cudasim {

/// This process's view of the shared file.
///
/// The file holds a slot for each process; only its process writes it. A process keeps its slot locked as long as it
/// lives. Unlocked slots do not count, so a process that dies gives its memory back.
///
/// Invariants:
///  I1  a process writes its own slot only, and only while it has the turn, or when it now uses less
///  I2  a process that reads the others' use keeps the turn until it has told its own: no byte is taken twice
class shared_devices {
 public:
  /// Opens the file, or makes it. Throws std::runtime_error, with a text that says why, if it cannot be used.
  explicit shared_devices(std::string const& path);
  shared_devices(shared_devices const&)            = delete;
  shared_devices& operator=(shared_devices const&) = delete;
  ~shared_devices();

  /// Bytes of a device that other processes use. Waits for the turn, and keeps it until end_turn().
  [[nodiscard]] std::size_t used_by_others(std::size_t device);

  /// Tells what this process uses of a device.
  void tell(std::size_t device, std::size_t bytes) noexcept;

  void end_turn() noexcept;

 private:
  static constexpr std::size_t most_processes = 64;
  static constexpr std::size_t most_devices   = 256;

  struct slot {
    std::array<std::atomic<std::uint64_t>, most_devices> used;
  };
  struct content {
    std::atomic<std::uint64_t> format;
    std::array<slot, most_processes> slots;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes share no locks of libatomic");

  void open(std::string const& path);
  void take_slot();

  int descriptor_{-1};
  content* content_{nullptr};
  std::size_t own_{0};
  bool has_turn_{false};
};

}  // namespace cudasim
