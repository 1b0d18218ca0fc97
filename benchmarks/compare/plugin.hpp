// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmarks/compare/plugin_interface.h>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace compare {

/// The functions of a plug-in.
struct plugin_functions {
  decltype(&plugin_allocator) allocator;
  decltype(&plugin_description) description;
  decltype(&plugin_features) features;
  decltype(&plugin_make) make;
  decltype(&plugin_end) end;
  decltype(&plugin_error) error;
  decltype(&plugin_make_stream) make_stream;
  decltype(&plugin_end_stream) end_stream;
  decltype(&plugin_allocate) allocate;
  decltype(&plugin_deallocate) deallocate;
  decltype(&plugin_reserved) reserved;
  decltype(&plugin_install) install;
  decltype(&plugin_uvectors) uvectors;
};

/// An allocator of a plug-in. It is as thread-safe as the plug-in's allocator. `functions` must outlive it.
class allocator {
 public:
  /// Throws std::runtime_error, with the plug-in's message, if the plug-in cannot make the allocator.
  allocator(plugin_functions const& functions, int index, std::size_t initial, std::size_t maximum);
  ~allocator();
  allocator(allocator const&)            = delete;
  allocator& operator=(allocator const&) = delete;

  /// Returns null if there is no memory.
  [[nodiscard]] void* allocate(std::size_t bytes, cudaStream_t stream) const
  {
    return allocate_(instance_, bytes, stream);
  }
  void deallocate(void* ptr, std::size_t bytes, cudaStream_t stream) const
  {
    deallocate_(instance_, ptr, bytes, stream);
  }

  [[nodiscard]] std::size_t reserved() const { return functions_.reserved(instance_); }
  void install() const { functions_.install(instance_); }
  void uninstall() const { functions_.install(nullptr); }

  /// Throws std::runtime_error on failure.
  void make_uvectors(std::size_t elements, std::size_t times, cudaStream_t stream) const;

 private:
  friend class stream;

  plugin_functions const& functions_;
  void* instance_;
  decltype(&plugin_allocate) allocate_;
  decltype(&plugin_deallocate) deallocate_;
};

/// A stream that the allocator's plug-in makes. The destructor waits for its work.
class stream {
 public:
  explicit stream(allocator const& owner);
  ~stream();
  stream(stream&& other) noexcept : owner_{other.owner_}, stream_{std::exchange(other.stream_, nullptr)} {}
  stream(stream const&)            = delete;
  stream& operator=(stream const&) = delete;
  stream& operator=(stream&&)      = delete;

  operator cudaStream_t() const { return stream_; }

 private:
  allocator const& owner_;
  cudaStream_t stream_;
};

/// An allocator that a plug-in offers.
class candidate {
 public:
  candidate(std::shared_ptr<plugin_functions const> functions, int index);

  [[nodiscard]] std::string const& name() const { return name_; }
  [[nodiscard]] std::string const& description() const { return description_; }

  /// Returns whether the allocator has all of these features, a set of plugin_feature.
  [[nodiscard]] bool has(unsigned features) const { return (features_ & features) == features; }

  [[nodiscard]] allocator make(std::size_t initial, std::size_t maximum) const
  {
    return allocator{*functions_, index_, initial, maximum};
  }

 private:
  std::shared_ptr<plugin_functions const> functions_;
  int index_;
  std::string name_;
  std::string description_;
  unsigned features_;
};

/// Loads a shared object and returns its allocators. The object stays loaded. Throws std::runtime_error if it is not a plug-in.
std::vector<candidate> load_plugin(std::string const& path);

/// Loads all plug-ins of a folder and returns their allocators. Reports those that cannot be loaded on standard error.
std::vector<candidate> load_plugins(std::string const& folder);

/// Returns two candidates that need no plug-in. `floor` does nothing: its times are the cost of the loops. `perfect packing`
/// hands out no addresses, and fails only when the live bytes exceed its maximum.
std::vector<candidate> built_in_candidates();

}  // namespace compare
