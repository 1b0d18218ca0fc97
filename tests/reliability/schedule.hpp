// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/simulated.hpp"
#include "../support/worker.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/trimmable_resource.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

/// @file
/// Random programs in the form of data, so that a failing one can be reduced and printed as C++.

namespace rmm::test {

/// One step of a program. Numbers of blocks are never reused, so that any subset of a program is a program: steps that
/// need a missing block are left out.
struct schedule_step {
  enum class kind : std::uint8_t {
    allocate,        ///< `block` of `bytes` bytes on `stream`, which writes it
    write,           ///< its stream writes the block
    free,            ///< the block's stream writes it again, then it is freed
    free_elsewhere,  ///< freed on `stream`, which first waits for the block's
    synchronize,     ///< the host waits for `stream`
    advance,         ///< one operation of the device runs
    replace_stream,  ///< the stream ends with pending work, and another begins; its blocks are freed first
    replace_thread,  ///< `thread` ends, and another takes its place
    trim,            ///< the resource of the stream's device gives back memory
  };
  kind what;
  std::uint8_t thread;
  std::uint8_t stream;
  std::uint32_t block;
  std::uint32_t bytes;
};

/// A resource that programs run on.
struct schedule_resource {
  std::string code;  ///< an expression that makes the resource, as an owning pointer
  std::function<std::shared_ptr<mr::device_memory_resource>()> make;
  std::uint32_t largest{300'000};  ///< bytes of the largest block
};

struct schedule {
  std::uint64_t seed{1};
  int devices{1};
  std::uint8_t threads{1};
  std::uint8_t streams{2};  ///< stream i belongs to device i modulo `devices`
  std::vector<schedule_step> steps{};

  static schedule random(std::uint64_t seed, std::size_t steps, std::uint32_t largest);
};

/// The result of a program.
struct schedule_result {
  std::string failure{};  ///< empty if there is none
  std::size_t step{};     ///< the step at which the failure was seen
  std::uint64_t operations{};
  std::set<std::uint32_t> refused{};  ///< blocks whose requests were refused
};

// --- making

inline schedule schedule::random(std::uint64_t seed, std::size_t steps, std::uint32_t largest)
{
  std::mt19937_64 random{seed};
  auto const pick = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
  schedule made;
  made.seed    = seed;
  made.devices = pick(4) == 0 ? 2 : 1;
  made.threads = static_cast<std::uint8_t>(1 + pick(4));
  made.streams = static_cast<std::uint8_t>((2 + pick(4)) * static_cast<std::uint32_t>(made.devices));
  std::uint32_t favourites[5];
  for (auto& size : favourites) { size = 1 + pick(largest / (1 + pick(40))); }
  auto const most_live = 4 + pick(200);
  std::vector<std::uint32_t> live;
  std::uint32_t blocks{0};
  std::uint8_t thread{0};
  made.steps.reserve(steps);
  using kind     = schedule_step::kind;
  auto const add = [&](kind what, std::uint32_t block = 0, std::uint32_t bytes = 0) {
    made.steps.push_back({what, thread, static_cast<std::uint8_t>(pick(made.streams)), block, bytes});
  };
  while (made.steps.size() < steps) {
    if (pick(48) == 0) { thread = static_cast<std::uint8_t>(pick(made.threads)); }
    auto const what = pick(1000);
    if (what < 440 && live.size() < most_live) {
      auto const bytes = pick(6) == 0 ? 1 + pick(largest) : pick(4) == 0 ? 1 + pick(2000) : favourites[pick(5)];
      live.push_back(blocks);
      add(kind::allocate, blocks++, bytes);
    } else if (what < 860 && !live.empty()) {
      auto const which = pick(live.size());
      add(pick(5) == 0 ? kind::free_elsewhere : kind::free, live[which]);
      live[which] = live.back();
      live.pop_back();
    } else if (what < 890 && !live.empty()) {
      add(kind::write, live[pick(live.size())]);
    } else if (what < 960) {
      add(kind::advance);
    } else if (what < 985) {
      add(kind::synchronize);
    } else if (what < 993) {
      add(kind::replace_stream);
    } else if (what < 997) {
      add(kind::replace_thread);
    } else {
      add(kind::trim);
    }
  }
  return made;
}

// --- running

/// Runs a program on a new machine. The steps of all threads happen in the order of the program.
class schedule_run {
 public:
  static schedule_result of(schedule const& program, schedule_resource const& resource)
  {
    cudasim::options machine;
    machine.devices        = program.devices;
    machine.mode           = cudasim::execution::stepped;
    machine.seed           = program.seed;
    machine.check_ordering = true;
    Simulated::start(machine);
    schedule_result result;
    {
      schedule_run run{program, resource, result};
      run.all();
    }
    static_cast<void>(cudaSetDevice(0));
    if (result.failure.empty()) {
      look(result, program.steps.size());
      auto const leaks = cudasim::leak_report();
      if (result.failure.empty() && !leaks.empty()) { result.failure = leaks; }
    }
    cudasim::clear_violations();
    return result;
  }

 private:
  struct live_block {
    void* ptr;
    std::size_t bytes;
    std::uint8_t stream;
  };

  schedule_run(schedule const& program, schedule_resource const& resource, schedule_result& result)
    : program_{program}, result_{result}
  {
    for (int device = 0; device < program.devices; ++device) {
      static_cast<void>(cudaSetDevice(device));
      resources_.push_back(resource.make());
      addresses_.emplace_back();
    }
    streams_.resize(program.streams);
    for (std::uint8_t i = 0; i < program.streams; ++i) {
      static_cast<void>(cudaSetDevice(device_of(i)));
      streams_[i].emplace();
    }
    for (std::uint8_t i = 0; i < program.threads; ++i) { threads_.push_back(std::make_unique<worker>()); }
  }

  [[nodiscard]] int device_of(std::uint8_t stream) const { return stream % program_.devices; }

  static void look(schedule_result& result, std::size_t step)
  {
    auto const found = cudasim::violations();
    if (found.empty() || !result.failure.empty()) { return; }
    result.failure = found[0].text;
    result.step    = step;
  }

  void all()
  {
    auto const& steps = program_.steps;
    for (std::size_t begin = 0; begin < steps.size() && result_.failure.empty();) {
      auto const thread = steps[begin].thread;
      auto end          = begin;
      while (end < steps.size() && steps[end].thread == thread && end - begin < 64) { ++end; }
      threads_[thread]->run([&] {
        device_ = -1;
        for (auto i = begin; i < end && result_.failure.empty(); ++i) {
          try {
            one(steps[i], i);
          } catch (std::exception const& error) {
            // allocate() catches the exceptions for a lack of memory. No others are expected.
            result_.failure = std::string{"it throws: "} + error.what();
            result_.step    = i;
          }
        }
      });
      for (auto i = begin; i < end; ++i) {
        if (steps[i].what == schedule_step::kind::replace_thread) { threads_[thread] = std::make_unique<worker>(); }
      }
      look(result_, end);
      begin = end;
    }
    threads_[0]->run([&] {
      device_ = -1;
      while (!live_.empty()) { free(live_.begin()->first); }
    });
    threads_.clear();
    for (int device = 0; device < program_.devices; ++device) {
      static_cast<void>(cudaSetDevice(device));
      resources_[static_cast<std::size_t>(device)].reset();
    }
    for (std::uint8_t i = 0; i < program_.streams; ++i) {
      static_cast<void>(cudaSetDevice(device_of(i)));
      streams_[i].reset();
    }
  }

  void use_device_of(std::uint8_t stream)
  {
    if (device_ == device_of(stream)) { return; }
    device_ = device_of(stream);
    static_cast<void>(cudaSetDevice(device_));
  }

  void one(schedule_step const& step, std::size_t number)
  {
    using kind = schedule_step::kind;
    ++result_.operations;
    switch (step.what) {
      case kind::allocate:
        return allocate(step, number);
      case kind::write:
        if (auto const found = live_.find(step.block); found != live_.end()) { write(found->second); }
        return;
      case kind::free:
        return free(step.block);
      case kind::free_elsewhere:
        return free_elsewhere(step);
      case kind::synchronize:
        use_device_of(step.stream);
        return streams_[step.stream]->synchronize();
      case kind::advance:
        return static_cast<void>(cudasim::step());
      case kind::replace_stream:
        return replace_stream(step.stream);
      case kind::replace_thread:
        return;
      case kind::trim:
        if (auto* const resource = dynamic_cast<mr::trimmable_resource*>(&resource_of(step.stream))) {
          use_device_of(step.stream);
          resource->release_unused();
        }
        return;
    }
  }

  [[nodiscard]] mr::device_memory_resource& resource_of(std::uint8_t stream)
  {
    return *resources_[static_cast<std::size_t>(device_of(stream))];
  }

  void allocate(schedule_step const& step, std::size_t number)
  {
    use_device_of(step.stream);
    void* ptr{};
    try {
      ptr = resource_of(step.stream).allocate(step.bytes, *streams_[step.stream]);
    } catch (std::bad_alloc const&) {
      result_.refused.insert(step.block);
      return;
    }
    auto& addresses     = addresses_[static_cast<std::size_t>(device_)];
    auto const address  = reinterpret_cast<std::uintptr_t>(ptr);
    auto const next     = addresses.lower_bound(address);
    bool const overlaps = (next != addresses.end() && next->first < address + step.bytes) ||
                          (next != addresses.begin() && std::prev(next)->first + std::prev(next)->second > address);
    if (overlaps || address % 256 != 0) {
      result_.failure = "a block is handed out that overlaps another, or is not aligned";
      result_.step    = number;
      return;
    }
    addresses.emplace_hint(next, address, step.bytes);
    write(live_.emplace(step.block, live_block{ptr, step.bytes, step.stream}).first->second);
  }

  void write(live_block const& block)
  {
    ++result_.operations;
    use_device_of(block.stream);
    static_cast<void>(cudasim::launch(streams_[block.stream]->value(), {}, {{block.ptr, block.bytes}}));
  }

  void free(std::uint32_t number)
  {
    auto const found = live_.find(number);
    if (found == live_.end()) { return; }
    auto const block = found->second;
    live_.erase(found);
    write(block);
    addresses_[static_cast<std::size_t>(device_)].erase(reinterpret_cast<std::uintptr_t>(block.ptr));
    resource_of(block.stream).deallocate(block.ptr, block.bytes, *streams_[block.stream]);
  }

  void free_elsewhere(schedule_step const& step)
  {
    auto const found = live_.find(step.block);
    if (found == live_.end()) { return; }
    auto& block = found->second;
    if (device_of(step.stream) == device_of(block.stream) && step.stream != block.stream) {
      use_device_of(block.stream);
      ++result_.operations;
      streams_[block.stream]->synchronize();
      block.stream = step.stream;
    }
    free(step.block);
  }

  void replace_stream(std::uint8_t which)
  {
    for (auto each = live_.begin(); each != live_.end();) {
      auto const number = (each++)->first;
      if (live_.at(number).stream == which) { free(number); }
    }
    use_device_of(which);
    streams_[which].reset();
    streams_[which].emplace();
  }

  schedule const& program_;
  schedule_result& result_;
  std::vector<std::shared_ptr<mr::device_memory_resource>> resources_;
  std::vector<std::map<std::uintptr_t, std::size_t>> addresses_;  // of live blocks
  std::vector<std::optional<cuda_stream>> streams_;
  std::vector<std::unique_ptr<worker>> threads_;
  std::map<std::uint32_t, live_block> live_;
  int device_{-1};  // the running thread's
};

// --- reducing

/// Reduces a failing program: leaves out steps, threads, streams, devices and bytes while it still fails.
template <class Fails>
schedule shrink(schedule program, Fails fails)
{
  auto const try_with = [&](schedule smaller) {
    if (!fails(smaller)) { return false; }
    program = std::move(smaller);
    return true;
  };
  for (bool again = true; again;) {
    again = false;
    for (auto size = std::max<std::size_t>(program.steps.size() / 2, 1); size > 0; size /= 2) {
      for (std::size_t begin = 0; begin < program.steps.size();) {
        auto smaller     = program;
        auto const first = smaller.steps.begin() + static_cast<std::ptrdiff_t>(begin);
        smaller.steps.erase(first, first + static_cast<std::ptrdiff_t>(std::min(size, smaller.steps.size() - begin)));
        if (try_with(std::move(smaller))) {
          again = true;
        } else {
          begin += size;
        }
      }
    }
    auto const simplify = [&](auto change) {
      auto smaller = program;
      if (change(smaller) && try_with(std::move(smaller))) { again = true; }
    };
    simplify([](schedule& p) { return std::exchange(p.devices, 1) != 1; });
    simplify([](schedule& p) {
      for (auto& each : p.steps) { each.thread = 0; }
      return std::exchange(p.threads, std::uint8_t{1}) != 1;
    });
    simplify([](schedule& p) {
      bool changes = false;
      for (auto& each : p.steps) { changes = std::exchange(each.bytes, 256U) != 256 || changes; }
      return changes;
    });
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      simplify([&](schedule& p) { return std::exchange(p.steps[i].stream, std::uint8_t{0}) > 0; });
      simplify([&](schedule& p) { return std::exchange(p.steps[i].stream, std::uint8_t{1}) > 1; });
      simplify([&](schedule& p) { return std::exchange(p.steps[i].bytes, 256U) > 256; });
      simplify([&](schedule& p) {
        return std::exchange(p.steps[i].what, schedule_step::kind::free) == schedule_step::kind::free_elsewhere;
      });
    }
    simplify([](schedule& p) {
      std::uint8_t used = 0;
      for (auto const& each : p.steps) { used = std::max(used, each.stream); }
      auto const streams = static_cast<std::uint8_t>(std::max<int>(used + 1, p.devices));
      return std::exchange(p.streams, streams) > streams;
    });
  }
  std::map<std::uint32_t, std::uint32_t> numbers;
  auto renumbered = program;
  for (auto& each : renumbered.steps) {
    each.block = numbers.emplace(each.block, static_cast<std::uint32_t>(numbers.size())).first->second;
  }
  try_with(std::move(renumbered));
  return program;
}

// --- printing

/// The program as C++ statements that do the same on the simulator and end with its violations. `refused`: the blocks
/// whose requests fail.
inline std::string to_code(schedule const& program,
                           schedule_resource const& resource,
                           std::set<std::uint32_t> const& refused)
{
  using kind             = schedule_step::kind;
  auto const name        = [](char const* what, std::uint32_t n) { return what + std::to_string(n); };
  bool const has_devices = program.devices > 1;
  bool const has_threads = program.threads > 1;
  auto const device_of   = [&](std::uint8_t stream) { return static_cast<std::uint32_t>(stream % program.devices); };
  auto const set_device  = [&](std::uint32_t device) {
    return has_devices ? "cudaSetDevice(" + std::to_string(device) + ");\n" : std::string{};
  };
  std::string code = "cudasim::options machine;\n";
  if (has_devices) { code += "machine.devices = " + std::to_string(program.devices) + ";\n"; }
  code += "machine.mode = cudasim::execution::stepped;\n";
  code += "machine.seed = " + std::to_string(program.seed) + ";\n";
  code += "machine.check_ordering = true;\ncudasim::reset(machine);\n";
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(program.devices); ++i) {
    code += set_device(i) + "auto const " + name("mr", i) + " = " + resource.code + ";\n";
  }
  for (std::uint8_t i = 0; i < program.streams; ++i) {
    code += set_device(device_of(i)) + "std::optional<rmm::cuda_stream> " + name("stream", i) + "{std::in_place};\n";
  }
  if (has_threads) {
    for (std::uint8_t i = 0; i < program.threads; ++i) {
      code += "std::optional<rmm::test::worker> " + name("thread", i) + "{std::in_place};\n";
    }
  }
  struct block {
    std::uint32_t bytes;
    std::uint8_t stream;
  };
  std::map<std::uint32_t, block> live;
  auto const write = [&](std::uint32_t number) {
    auto const& of = live.at(number);
    return "cudasim::launch(" + name("stream", of.stream) + "->value(), {}, {{" + name("block", number) + ", " +
           std::to_string(of.bytes) + "}});\n";
  };
  auto const free = [&](std::uint32_t number) {
    auto const of = live.at(number);
    auto text     = write(number) + name("mr", device_of(of.stream)) + "->deallocate(" + name("block", number) + ", " +
                std::to_string(of.bytes) + ", *" + name("stream", of.stream) + ");\n";
    live.erase(number);
    return text;
  };
  for (auto const& step : program.steps) {
    auto const stream = name("stream", step.stream);
    std::string text  = set_device(device_of(step.stream));
    switch (step.what) {
      case kind::allocate: {
        auto const call =
          name("mr", device_of(step.stream)) + "->allocate(" + std::to_string(step.bytes) + ", *" + stream + ")";
        if (refused.count(step.block) != 0) {
          text += "EXPECT_THROW(static_cast<void>(" + call + "), std::bad_alloc);\n";
          break;
        }
        live[step.block] = {step.bytes, step.stream};
        if (has_threads) { code += "void* " + name("block", step.block) + "{};\n"; }
        text += (has_threads ? "" : "void* const ") + name("block", step.block) + " = " + call + ";\n";
        text += write(step.block);
        break;
      }
      case kind::write:
        if (live.count(step.block) != 0) { text += write(step.block); }
        break;
      case kind::free_elsewhere:
        if (auto const found = live.find(step.block); found != live.end() &&
                                                      device_of(found->second.stream) == device_of(step.stream) &&
                                                      found->second.stream != step.stream) {
          text += name("stream", found->second.stream) + "->synchronize();\n";
          found->second.stream = step.stream;
        }
        [[fallthrough]];
      case kind::free:
        if (live.count(step.block) != 0) { text += free(step.block); }
        break;
      case kind::synchronize:
        text += stream + "->synchronize();\n";
        break;
      case kind::advance:
        text += "cudasim::step();\n";
        break;
      case kind::replace_stream:
        for (auto each = live.begin(); each != live.end();) {
          auto const number = (each++)->first;
          if (live.at(number).stream == step.stream) { text += free(number); }
        }
        text += stream + ".reset();\n" + stream + ".emplace();\n";
        break;
      case kind::replace_thread:
        if (has_threads) { code += name("thread", step.thread) + ".emplace();\n"; }
        continue;
      case kind::trim:
        text += "if (auto* const trimmable = dynamic_cast<rmm::mr::trimmable_resource*>(" +
                name("mr", device_of(step.stream)) + ".get())) { trimmable->release_unused(); }\n";
        break;
    }
    code += has_threads ? name("thread", step.thread) + "->run([&] {\n" + text + "});\n" : text;
  }
  while (!live.empty()) { code += free(live.begin()->first); }
  return code + "auto const violations = cudasim::violations();\n";
}

}  // namespace rmm::test
