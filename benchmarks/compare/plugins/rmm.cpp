// SPDX-License-Identifier: Apache-2.0
//
// The resources of an RMM, whichever headers the plug-in is compiled with: those of this repository, or of another release.

#include <benchmarks/compare/plugin_interface.h>
#include <benchmarks/compare/plugins/failure.hpp>
#include <benchmarks/compare/plugins/rmm_release.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/device_uvector.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#ifndef RMM_COMPARE_PREFIX
#define RMM_COMPARE_PREFIX "rmm"
#endif

namespace {

/// A resource together with its upstreams.
class instance {
 public:
  virtual ~instance() = default;

  [[nodiscard]] release::any_resource& resource() noexcept { return resource_; }
  [[nodiscard]] virtual std::size_t reserved() const { return 0; }

  void install() { previous_ = rmm::mr::set_current_device_resource(resource_); }
  void uninstall() { rmm::mr::set_current_device_resource(previous_); }

 protected:
  instance() = default;

  template <class Resource>
  void set_resource(Resource& resource)
  {
    resource_ = release::ref(resource);
  }

 private:
  release::any_resource resource_{};
  release::any_resource previous_{};
};

std::optional<std::size_t> unless_zero(std::size_t bytes)
{
  return bytes == 0 ? std::nullopt : std::optional<std::size_t>{bytes};
}

class pool_instance : public instance {
 public:
  pool_instance(std::size_t initial, std::size_t maximum) : pool_{release::ref(cuda_), initial, unless_zero(maximum)}
  {
    set_resource(pool_);
  }
  [[nodiscard]] std::size_t reserved() const override { return pool_.pool_size(); }

 protected:
  release::pool_resource& pool() { return pool_; }

 private:
  release::cuda_resource cuda_;
  release::pool_resource pool_;
};

#ifdef RMM_COMPARE_CHECK_CAPTURE
/// A pool that asks in each call whether the stream captures.
class checking_pool_instance : public pool_instance {
 public:
  checking_pool_instance(std::size_t initial, std::size_t maximum) : pool_instance{initial, maximum}
  {
    pool().set_check_capture(true);
  }
};
#endif

class binning_instance : public pool_instance {
 public:
  binning_instance(std::size_t initial, std::size_t maximum)
    : pool_instance{initial, maximum}, binning_{release::ref(pool()), 18, 22}
  {
    set_resource(binning_);
  }

 private:
  release::binning_resource binning_;
};

/// A resource whose blocks all have 1 MiB. It serves only requests of up to that size.
class fixed_size_instance : public instance {
 public:
  fixed_size_instance(std::size_t initial, std::size_t /*maximum*/)
    : blocks_{release::ref(cuda_), block_bytes, std::max(initial / block_bytes, default_blocks)}
  {
    set_resource(blocks_);
  }

 private:
  static constexpr std::size_t block_bytes    = std::size_t{1} << 20U;
  static constexpr std::size_t default_blocks = 128;

  release::cuda_resource cuda_;
  release::fixed_size_resource blocks_;
};

class arena_instance : public instance {
 public:
  arena_instance(std::size_t initial, std::size_t maximum)
    : bytes_{std::max(initial, maximum)}, arena_{release::ref(cuda_), unless_zero(bytes_)}
  {
    set_resource(arena_);
  }
  [[nodiscard]] std::size_t reserved() const override { return bytes_; }

 private:
  std::size_t bytes_;
  release::cuda_resource cuda_;
  release::arena_resource arena_;
};

class cuda_async_instance : public instance {
 public:
  cuda_async_instance(std::size_t initial, std::size_t) : async_{unless_zero(initial)} { set_resource(async_); }

  [[nodiscard]] std::size_t reserved() const override
  {
    std::uint64_t bytes = 0;
    if (cudaMemPoolGetAttribute(async_.pool_handle(), cudaMemPoolAttrReservedMemCurrent, &bytes) != cudaSuccess) {
      return 0;
    }
    return bytes;
  }

 private:
  rmm::mr::cuda_async_memory_resource async_;
};

#ifdef RMM_COMPARE_CACHED
class cached_instance : public instance {
 public:
  cached_instance(std::size_t initial, std::size_t maximum)
    : cache_{release::ref(async_), initial, unless_zero(maximum)}
  {
    set_resource(cache_);
  }

  [[nodiscard]] std::size_t reserved() const override { return cache_.pool_size(); }

 private:
  rmm::mr::cuda_async_memory_resource async_;
  rmm::mr::cached_memory_resource<rmm::mr::cuda_async_memory_resource> cache_;
};
#endif

#ifdef RMM_COMPARE_ELASTIC
template <std::size_t ChunkBytes>
class elastic_instance : public instance {
 public:
  elastic_instance(std::size_t initial, std::size_t maximum) : pool_{options(initial, maximum)} { set_resource(pool_); }

  [[nodiscard]] std::size_t reserved() const override { return pool_.mapped_bytes(); }

 private:
  [[nodiscard]] static rmm::mr::elastic_pool_options options(std::size_t initial, std::size_t maximum)
  {
    rmm::mr::elastic_pool_options wanted;
    wanted.initial_bytes = initial;
    wanted.maximum_bytes = unless_zero(maximum);
    wanted.chunk_bytes   = ChunkBytes;
    return wanted;
  }

  rmm::mr::elastic_pool_memory_resource pool_;
};
#endif

#if defined(RMM_COMPARE_PINNED_POOL) || defined(RMM_COMPARE_PINNED_HOST)
#define RMM_COMPARE_PINNED
/// A pool of page-locked memory of the host.
class pinned_pool_instance : public instance {
 public:
#if defined(RMM_COMPARE_PINNED_POOL)
  pinned_pool_instance(std::size_t initial, std::size_t maximum) : pool_{initial, unless_zero(maximum)}
#else
  pinned_pool_instance(std::size_t initial, std::size_t maximum)
    : pool_{release::ref(pinned_), initial, unless_zero(maximum)}
#endif
  {
    set_resource(pool_);
  }

  [[nodiscard]] std::size_t reserved() const override { return pool_.pool_size(); }

 private:
#if defined(RMM_COMPARE_PINNED_POOL)
  rmm::mr::pinned_pool_memory_resource pool_;
#else
  rmm::mr::pinned_host_memory_resource pinned_;
  release::pool_over<rmm::mr::pinned_host_memory_resource> pool_;
#endif
};
#endif

/// An adaptor over a pool. `Adaptor` is constructed with the upstream and `args`.
template <class Adaptor>
class adaptor_instance : public pool_instance {
 public:
  template <class... Arguments>
  adaptor_instance(std::size_t initial, std::size_t maximum, Arguments&&... arguments)
    : pool_instance{initial, maximum}, adaptor_{release::ref(pool()), std::forward<Arguments>(arguments)...}
  {
    set_resource(adaptor_);
  }

 private:
  Adaptor adaptor_;
};

template <bool WithStacks>
class tracking_instance : public adaptor_instance<release::tracking_adaptor> {
 public:
  tracking_instance(std::size_t initial, std::size_t maximum) : adaptor_instance{initial, maximum, WithStacks} {}
};

class limiting_instance : public adaptor_instance<release::limiting_adaptor> {
 public:
  limiting_instance(std::size_t initial, std::size_t maximum) : adaptor_instance{initial, maximum, maximum} {}
};

class logging_instance : public adaptor_instance<release::logging_adaptor> {
 public:
  logging_instance(std::size_t initial, std::size_t maximum) : adaptor_instance{initial, maximum, "/dev/null"} {}
};

using statistics_instance = adaptor_instance<release::statistics_adaptor>;

class cuda_instance : public instance {
 public:
  cuda_instance(std::size_t, std::size_t) { set_resource(cuda_); }

 private:
  release::cuda_resource cuda_;
};

template <class Instance>
instance* make(std::size_t initial, std::size_t maximum)
{
  return new Instance{initial, maximum};
}

struct offer {
  char const* name;
  char const* description;
  unsigned features;
  instance* (*make)(std::size_t initial, std::size_t maximum);
};

constexpr unsigned timed   = plugin_feature_times;
constexpr unsigned any     = timed | plugin_feature_memory | plugin_feature_containers;
constexpr unsigned bounded = any | plugin_feature_bounded;
constexpr unsigned adaptor = plugin_feature_adaptor;
constexpr unsigned small   = plugin_feature_small_times | plugin_feature_memory | plugin_feature_containers;

offer const offers[] = {
  {RMM_COMPARE_PREFIX ".pool", "pool_memory_resource over cuda", bounded, make<pool_instance>},
#ifdef RMM_COMPARE_CHECK_CAPTURE
  {RMM_COMPARE_PREFIX ".pool_check_capture", "the same, with check_capture", timed, make<checking_pool_instance>},
#endif
  {RMM_COMPARE_PREFIX ".arena", "arena_memory_resource over cuda", bounded, make<arena_instance>},
  {RMM_COMPARE_PREFIX ".binning",
   "binning_memory_resource 18..22 over pool over cuda",
   bounded,
   make<binning_instance>},
  {RMM_COMPARE_PREFIX ".fixed_size",
   "fixed_size_memory_resource, blocks of 1 MiB, over cuda",
   small,
   make<fixed_size_instance>},
  {RMM_COMPARE_PREFIX ".cuda_async", "cuda_async_memory_resource", any, make<cuda_async_instance>},
#ifdef RMM_COMPARE_CACHED
  {RMM_COMPARE_PREFIX ".cached", "cached_memory_resource over cuda_async", bounded, make<cached_instance>},
#endif
#ifdef RMM_COMPARE_ELASTIC
  {RMM_COMPARE_PREFIX ".elastic", "elastic_pool_memory_resource, smallest chunks", bounded, make<elastic_instance<0>>},
  {RMM_COMPARE_PREFIX ".elastic32",
   "elastic_pool_memory_resource, chunks of 32 MiB",
   bounded,
   make<elastic_instance<std::size_t{32} << 20U>>},
#endif
#ifdef RMM_COMPARE_PINNED
  {RMM_COMPARE_PREFIX ".pinned_pool", "a pool of page-locked memory of the host", bounded, make<pinned_pool_instance>},
#endif
  {RMM_COMPARE_PREFIX ".cuda", "cuda_memory_resource", any, make<cuda_instance>},
  {RMM_COMPARE_PREFIX ".statistics", "statistics over pool", adaptor, make<statistics_instance>},
  {RMM_COMPARE_PREFIX ".limiting", "limiting over pool", adaptor, make<limiting_instance>},
  {RMM_COMPARE_PREFIX ".tracking", "tracking over pool", adaptor, make<tracking_instance<false>>},
  {RMM_COMPARE_PREFIX ".tracking_stacks", "tracking with stacks over pool", adaptor, make<tracking_instance<true>>},
  {RMM_COMPARE_PREFIX ".logging", "logging over pool, to /dev/null", adaptor, make<logging_instance>},
};
constexpr int offer_count = sizeof offers / sizeof offers[0];

std::string version()
{
#ifdef RMM_VERSION_MAJOR
  return " (" + std::to_string(RMM_VERSION_MAJOR) + '.' + std::to_string(RMM_VERSION_MINOR) + '.' +
         std::to_string(RMM_VERSION_PATCH) + ")";
#else
  return "";
#endif
}

release::any_resource& resource_of(void* allocator) { return static_cast<instance*>(allocator)->resource(); }

/// Makes and destroys non-blocking streams.
template <class Stream, class = void>
struct stream_maker {  // for releases whose cuda_stream has no flags
  static cudaStream_t make()
  {
    cudaStream_t stream{};
    auto const status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (status != cudaSuccess) { throw std::runtime_error{cudaGetErrorString(status)}; }
    return stream;
  }
  static void end(cudaStream_t stream) { static_cast<void>(cudaStreamDestroy(stream)); }
};

template <class Stream>
struct stream_maker<Stream, std::void_t<typename Stream::flags>> {  // the library knows these
  static cudaStream_t make()
  {
    Stream stream{Stream::flags::non_blocking};
    auto const handle = stream.value();
    std::lock_guard<std::mutex> const lock{mutex()};
    streams().insert_or_assign(handle, std::move(stream));
    return handle;
  }

  static void end(cudaStream_t stream)
  {
    std::lock_guard<std::mutex> const lock{mutex()};
    streams().erase(stream);
  }

 private:
  static std::mutex& mutex()
  {
    static auto& only = *new std::mutex;
    return only;
  }
  static std::unordered_map<cudaStream_t, Stream>& streams()
  {
    static auto& all = *new std::unordered_map<cudaStream_t, Stream>;
    return all;
  }
};

using streams = stream_maker<rmm::cuda_stream>;

}  // namespace

char const* plugin_allocator(int index) { return index >= 0 && index < offer_count ? offers[index].name : nullptr; }

char const* plugin_description(int index)
{
  thread_local std::string text;
  text = offers[index].description + version();
  return text.c_str();
}

unsigned plugin_features(int index) { return offers[index].features; }

void* plugin_make(int index, size_t initial, size_t maximum)
{
  return plugin::attempt<void*>(nullptr, [&] { return offers[index].make(initial, maximum); });
}

void plugin_end(void* allocator) { delete static_cast<instance*>(allocator); }

char const* plugin_error() { return plugin::last_error().c_str(); }

cudaStream_t plugin_make_stream(void*)
{
  return plugin::attempt<cudaStream_t>(nullptr, [] { return streams::make(); });
}

void plugin_end_stream(void*, cudaStream_t stream) { streams::end(stream); }

void* plugin_allocate(void* allocator, size_t bytes, cudaStream_t stream)
{
  try {
    return release::allocate(resource_of(allocator), bytes, release::stream_view{stream});
  } catch (std::exception const& e) {
    plugin::last_error() = e.what();
    return nullptr;
  }
}

void plugin_deallocate(void* allocator, void* ptr, size_t bytes, cudaStream_t stream)
{
  release::deallocate(resource_of(allocator), ptr, bytes, release::stream_view{stream});
}

size_t plugin_reserved(void* allocator) { return static_cast<instance*>(allocator)->reserved(); }

void plugin_install(void* allocator)
{
  static instance* installed = nullptr;
  if (installed != nullptr) { installed->uninstall(); }
  installed = static_cast<instance*>(allocator);
  if (installed != nullptr) { installed->install(); }
}

int plugin_uvectors(size_t elements, size_t times, cudaStream_t stream)
{
  return plugin::attempt<int>(0, [&] {
    for (size_t i = 0; i < times; ++i) {
      rmm::device_uvector<int> const vector{elements, release::stream_view{stream}};
      asm volatile("" : : "g"(vector.data()) : "memory");
    }
    return 1;
  });
}
