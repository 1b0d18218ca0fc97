// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/resource_configuration.hpp>

// A program with several files that include this header can compile the classes of all resources in one of them: the others define
// RMM_COMPILED_RESOURCES, and the first one instantiates make_layers<void>().
#if !defined(RMM_COMPILED_RESOURCES)
#include <rmm/aligned.hpp>
#include <rmm/detail/base/host_memory.hpp>
#include <rmm/detail/base/private_file.hpp>
#include <rmm/detail/base/text_sink.hpp>
#include <rmm/detail/cuda/memory_pool.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/mr/detail/allocation_log.hpp>
#include <rmm/mr/detail/logging_adaptor.hpp>
#include <rmm/mr/recommended_configuration.hpp>

#define RMM_RESOURCE_HEADERS
#include <rmm/mr/detail/resource_table.inc>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <tuple>
#endif

#include <cstddef>
#include <forward_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

#if defined(RMM_COMPILED_RESOURCES)

template <class Unused>
RMM_COLD void make_layers(resource_configuration const& configuration,
                          std::vector<std::unique_ptr<device_memory_resource>>& layers,
                          std::string& explanation);
extern template void make_layers<void>(resource_configuration const&,
                                       std::vector<std::unique_ptr<device_memory_resource>>&,
                                       std::string&);

#else

/// The adaptor of the option `log` for CSV: a logging_resource_adaptor that knows no logging library.
class csv_log_adaptor final : public logging_adaptor<csv_log_adaptor, device_memory_resource> {
 public:
  /// The file is created, or emptied. Throws std::runtime_error if it cannot be opened.
  csv_log_adaptor(device_memory_resource* upstream, std::string const& filename)
    : logging_adaptor{
        upstream, [&] {
          using rmm::detail::file_sink;
          allocation_log::sink_list sinks{std::make_shared<file_sink>(filename, file_sink::mode::truncate)};
          return std::make_unique<allocation_log>(std::move(sinks), false);
        }}
  {}
};

/// Returns expanded_file_name(). Without `%d`, `.dev` and the number come before the last ending of the file's name, or at the end if it has
/// none.
[[nodiscard]] RMM_COLD inline std::string file_name_for(std::string const& pattern, int device)
{
  auto [name, names_device] = rmm::detail::expanded_file_name(pattern, device);
  if (names_device) { return name; }
  auto const begin = name.rfind('/') + 1;  // of the file's name; 0 without a folder
  auto const dot   = name.rfind('.');
  bool const ends  = dot != std::string::npos && dot >= begin;
  return name.insert(ends ? dot : name.size(), ".dev" + std::to_string(device));
}

/// Makes the resource of a configuration and all that it is made over, on the current device. A template, so that files that include it and
/// make no resource do not compile its members.
template <class Unused>
class basic_resource_maker {
 public:
  using layer_list = std::vector<std::unique_ptr<device_memory_resource>>;

  /// Adds the layers to `layers`, the innermost first, and sentences to `explanation`.
  basic_resource_maker(layer_list& layers, std::string& explanation) : layers_{layers}, explanation_{explanation} {}

  /// Returns the outermost layer.
  RMM_COLD device_memory_resource* make(resource_configuration const& configuration);

 private:
  template <class Resource, class... Args>
  void add(Args&&... args)
  {
    layers_.push_back(std::make_unique<Resource>(std::forward<Args>(args)...));
  }

  /// Adds a pool that has the option `tags`.
  template <class Pool, class... Args>
  void add_pool(resource_configuration const& configuration, Args&&... args)
  {
    auto made = std::make_unique<Pool>(std::forward<Args>(args)...);
    if (configuration.has("tags")) { made->track_tags(); }
    layers_.push_back(std::move(made));
  }

  /// Adds an adaptor over the outermost layer.
  template <class Adaptor, class... Args>
  void put_on(Args&&... args)
  {
    add<Adaptor>(layers_.back().get(), std::forward<Args>(args)...);
  }

  void make_resource(resource_configuration const& configuration, device_memory_resource* upstream)
  {
    using memory = device_memory_resource;
    amounts const sizes{configuration};
    switch (configuration.kind()) {
#define RMM_RESOURCE(name, type, topic, place, upstream, options, ...) \
  case resource_kind::name: {                                          \
    __VA_ARGS__;                                                       \
    return;                                                            \
  }
#include <rmm/mr/detail/resource_table.inc>
    }
  }

  void put_on_adaptors(resource_configuration const& configuration)
  {
    using memory = device_memory_resource;
    amounts const sizes{configuration};
#define RMM_ADAPTOR(name, type, options, ...) \
  if (configuration.has(#name)) { __VA_ARGS__; }
#include <rmm/mr/detail/resource_table.inc>
  }

  void put_on_log(std::string const& file)
  {
    if (is_one_of(file, ".csv", true)) { return put_on<csv_log_adaptor>(file); }
    auto options = trace_options::from_environment();
    options.file.clear();
    for (char const c : file) { options.file += c == '%' ? std::string{"%%"} : std::string{c}; }
    put_on<trace_resource_adaptor<device_memory_resource>>(options);
  }

  void make_recommended(resource_configuration const& configuration)
  {
    auto const chosen = recommend_configuration(
      {configuration.amount("initial"), configuration.amount("max"), configuration.has("oversubscribe")});
    explanation_ += chosen.explanation;
    make(chosen.configuration);
  }

  /// The amounts of a configuration in bytes. Shares refer to the memory of the device or the host, wherever the resource allocates.
  class amounts {
   public:
    explicit amounts(resource_configuration const& configuration) : configuration_{configuration} {}

    [[nodiscard]] std::optional<std::size_t> maybe(char const* option) const
    {
      auto const amount = configuration_.amount(option);
      if (!amount) { return std::nullopt; }
      if (amount->is_absolute()) { return amount->bytes(0, 0); }
      auto const [free, total] =
        is_on_host(configuration_) ? rmm::detail::host_memory_info() : available_device_memory();
      return amount->bytes(total, free);
    }

    [[nodiscard]] std::size_t operator[](char const* option) const { return *maybe(option); }

   private:
    [[nodiscard]] static bool is_on_host(resource_configuration const& configuration)
    {
      if (auto const upstream = configuration.upstream()) { return is_on_host(*upstream); }
      return configuration.place() == memory_place::host;
    }

    resource_configuration const& configuration_;
  };

  /// Returns the initial and the maximum size of a pool, rounded down to multiples of 256.
  [[nodiscard]] static std::pair<std::size_t, std::optional<std::size_t>> pool_sizes(amounts const& sizes)
  {
    auto const initial = align_down(sizes.maybe("initial").value_or(0), CUDA_ALLOCATION_ALIGNMENT);
    auto maximum       = sizes.maybe("max");
    if (maximum) { maximum = align_down(*maximum, CUDA_ALLOCATION_ALIGNMENT); }
    if (maximum && initial > *maximum) {
      throw std::invalid_argument("The initial size of the pool is " + rmm::detail::format_bytes(initial) +
                                  " on this device, larger than its maximum of " + rmm::detail::format_bytes(*maximum));
    }
    return {initial, maximum};
  }

  [[nodiscard]] static elastic_pool_options elastic_options_of(resource_configuration const& configuration,
                                                               amounts const& sizes)
  {
    elastic_pool_options options;
    std::tie(options.initial_bytes, options.maximum_bytes) = pool_sizes(sizes);
    options.chunk_bytes                                    = sizes.maybe("chunk").value_or(0);
    if (auto const decay = configuration.number("decay_ms")) { options.decay = std::chrono::milliseconds{*decay}; }
    auto const share          = configuration.word("share");
    options.peer_access       = configuration.has("peer_access");
    options.share_descriptors = share == "fd" || share == "fd+fabric";
    options.share_fabric      = share == "fabric" || share == "fd+fabric";
    options.gpu_direct_rdma   = configuration.has("rdma");
    return options;
  }

  [[nodiscard]] static pinned_memory_options pinned_options(resource_configuration const& configuration)
  {
    pinned_memory_options options;
    options.near_device = configuration.has("near_device");
    if (auto const node = configuration.number("node")) { options.numa_node = static_cast<int>(*node); }
    options.threads        = static_cast<unsigned>(configuration.number("threads").value_or(0));
    options.allow_pageable = configuration.has("pageable");
    return options;
  }

  [[nodiscard]] static std::optional<cuda_async_memory_resource::allocation_handle_type> handle_types(
    std::string const& share)
  {
    using type = cuda_async_memory_resource::allocation_handle_type;
    if (share == "fd") { return type::posix_file_descriptor; }
    if (share == "fabric") { return type::fabric; }
    if (share == "fd+fabric") {
      return static_cast<type>(static_cast<int>(type::posix_file_descriptor) | static_cast<int>(type::fabric));
    }
    return std::nullopt;
  }

  [[nodiscard]] static std::int8_t exponent(std::size_t power_of_two) noexcept
  {
    std::int8_t result{0};
    for (; power_of_two > 1; power_of_two /= 2) { ++result; }
    return result;
  }

  layer_list& layers_;
  std::string& explanation_;
};

template <class Unused>
device_memory_resource* basic_resource_maker<Unused>::make(resource_configuration const& configuration)
{
  device_memory_resource* upstream = nullptr;
  if (auto const below = configuration.upstream()) { upstream = make(*below); }
  make_resource(configuration, upstream);
  put_on_adaptors(configuration);
  return layers_.back().get();
}

/// Makes the layers of a configuration, on the current device. Adds them to `layers`, the innermost first, and sentences to `explanation`.
template <class Unused>
RMM_COLD void make_layers(resource_configuration const& configuration,
                          std::vector<std::unique_ptr<device_memory_resource>>& layers,
                          std::string& explanation)
{
  basic_resource_maker<Unused>{layers, explanation}.make(configuration);
}

#endif

}  // namespace detail

/// An owner of a resource, with all its upstreams, that a text describes. Use it to let users choose the resource.
///
/// Copies share the resource; the last one destroys it.
///
/// @code{.cpp}
/// rmm::mr::configured_resource const resource{"pool,initial=1MiB,statistics"};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, *resource};
/// @endcode
class configured_resource {
 public:
  /// Makes the resource on the current device. Exceptions of its parts propagate. Throws std::invalid_argument if the initial size is
  /// larger than the maximum on this device, and std::runtime_error if a file cannot be opened.
  RMM_COLD explicit configured_resource(resource_configuration configuration)
    : configuration_{std::move(configuration)}, device_{rmm::detail::known_current_device()}, layers_{new layers{}}
  {
    layers_->device = device_;
    detail::make_layers<void>(configuration_, layers_->list, explanation_);
  }

  /// Makes the resource that `text` describes. Throws also as resource_configuration::parse() does.
  explicit configured_resource(std::string_view text) : configured_resource{resource_configuration::parse(text)} {}

  /// Returns the resource. It is valid as long as this object, a copy of it, or an object that one of them was moved to. Requires that the
  /// object was not moved from.
  [[nodiscard]] device_memory_resource* get() const noexcept { return layers_->list.back().get(); }

  /// Returns the resource. Requires that the object was not moved from.
  [[nodiscard]] device_memory_resource& operator*() const noexcept { return *get(); }

  /// Returns the resource. Requires that the object was not moved from.
  [[nodiscard]] device_memory_resource* operator->() const noexcept { return get(); }

  /// Returns a pointer that shares the ownership of the resource.
  [[nodiscard]] std::shared_ptr<device_memory_resource> share() const { return {layers_, get()}; }

  /// Returns the outermost layer of class `Layer`; null if there is none. The upstream of pools and adaptors is a device_memory_resource:
  /// `find<statistics_resource_adaptor<device_memory_resource>>()`.
  template <class Layer>
  [[nodiscard]] Layer* find() const noexcept
  {
    for (auto layer = layers_->list.rbegin(); layer != layers_->list.rend(); ++layer) {
      if (auto* const found = dynamic_cast<Layer*>(layer->get())) { return found; }
    }
    return nullptr;
  }

  /// Returns the configuration that the resource was made from.
  [[nodiscard]] resource_configuration const& configuration() const noexcept { return configuration_; }

  /// Returns the device that was current when the resource was made.
  [[nodiscard]] cuda_device_id device() const noexcept { return device_; }

  /// Returns the reasons why the resource was chosen, one sentence on each line; empty unless its configuration is `recommended`.
  [[nodiscard]] std::string const& explanation() const noexcept { return explanation_; }

 private:
  struct layers {
    std::vector<std::unique_ptr<device_memory_resource>> list{};  // the innermost first
    cuda_device_id device{0};

    layers()                         = default;
    layers(layers const&)            = delete;
    layers& operator=(layers const&) = delete;
    ~layers()
    {
      cuda_set_device_raii const with_device{device};
      while (!list.empty()) { list.pop_back(); }
    }
  };

  resource_configuration configuration_;
  cuda_device_id device_;
  std::shared_ptr<layers> layers_;
  std::string explanation_;
};

namespace detail {

/// Keeps resources until the process ends, because their memory may be in use until then. Returns the kept resources.
[[nodiscard]] RMM_COLD inline std::vector<configured_resource> const* keep_until_the_end(
  std::vector<configured_resource>&& resources)
{
  static rmm::detail::mutex mutex;
  static auto* const kept = new std::forward_list<std::vector<configured_resource>>{};
  rmm::detail::mutex_lock const lock{mutex};
  return &kept->emplace_front(std::move(resources));
}

}  // namespace detail

/// Makes a resource on each of `devices`, and registers it for the device (mr/per_device_resource.hpp).
///
/// The resources live until the process ends. Creates a context on each device. Throws logic_error if a device does not exist, and as the
/// constructor of configured_resource does. Changes nothing then.
RMM_COLD inline void use_configured_resource(resource_configuration const& configuration,
                                             std::vector<cuda_device_id> const& devices)
{
  for (auto const device : devices) {
    RMM_EXPECTS(device.value() >= 0 && device.value() < get_num_cuda_devices(),
                "Device " + std::to_string(device.value()) +
                  " does not exist. Number of devices: " + std::to_string(get_num_cuda_devices()));
  }
  std::vector<configured_resource> made;
  for (auto const device : devices) {
    cuda_set_device_raii const with_device{device};
    made.emplace_back(configuration);
  }
  for (auto const& resource : *detail::keep_until_the_end(std::move(made))) {
    set_per_device_resource(resource.device(), resource.get());
  }
}

/// Makes and registers a resource on each device that the process can use.
RMM_COLD inline void use_configured_resource(resource_configuration const& configuration)
{
  std::vector<cuda_device_id> devices;
  for (int device = 0; device < get_num_cuda_devices(); ++device) { devices.emplace_back(device); }
  use_configured_resource(configuration, devices);
}

/// Makes and registers the resource that the environment variable RMM_RESOURCE describes, on all devices. Returns whether it is set.
/// Throws std::invalid_argument if resource_configuration::parse() does not accept the text, and as use_configured_resource() does.
///
/// Call it when the program begins: the headers do not do that by themselves. For programs that do not call it, preload
/// librmm_environment.so; see docs/traces.md.
RMM_COLD inline bool use_resource_from_environment(char const* variable = resource_variable)
{
  auto const configuration = resource_configuration::from_environment(variable);
  if (configuration) { use_configured_resource(*configuration); }
  return configuration.has_value();
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
