// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/compare/plugin.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>

namespace compare {

allocator::allocator(plugin_functions const& functions, int index, std::size_t initial, std::size_t maximum)
  : functions_{functions},
    instance_{functions.make(index, initial, maximum)},
    allocate_{functions.allocate},
    deallocate_{functions.deallocate}
{
  if (instance_ == nullptr) { throw std::runtime_error{functions.error()}; }
}

allocator::~allocator() { functions_.end(instance_); }

void allocator::make_uvectors(std::size_t elements, std::size_t times, cudaStream_t stream) const
{
  if (functions_.uvectors(elements, times, stream) == 0) { throw std::runtime_error{functions_.error()}; }
}

stream::stream(allocator const& owner) : owner_{owner}, stream_{owner.functions_.make_stream(owner.instance_)}
{
  if (stream_ == nullptr) { throw std::runtime_error{owner.functions_.error()}; }
}

stream::~stream()
{
  if (stream_ == nullptr) { return; }
  static_cast<void>(cudaStreamSynchronize(stream_));
  owner_.functions_.end_stream(owner_.instance_, stream_);
}

candidate::candidate(std::shared_ptr<plugin_functions const> functions, int index)
  : functions_{std::move(functions)},
    index_{index},
    name_{functions_->allocator(index)},
    description_{functions_->description(index)},
    features_{functions_->features(index)}
{
  if ((features_ & plugin_feature_times) != 0) { features_ |= plugin_feature_small_times; }
}

namespace {

std::vector<candidate> candidates_of(plugin_functions const& functions)
{
  auto const shared = std::make_shared<plugin_functions const>(functions);
  std::vector<candidate> result;
  for (int index = 0; shared->allocator(index) != nullptr; ++index) { result.emplace_back(shared, index); }
  return result;
}

template <class Function>
void look_up(void* library, char const* name, Function& function)
{
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) { throw std::runtime_error{dlerror()}; }
}

}  // namespace

std::vector<candidate> load_plugin(std::string const& path)
{
  // RTLD_LOCAL, so that plug-ins do not see each other's symbols. RTLD_NOW, so that no symbol is resolved while the clock runs.
  auto* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) { throw std::runtime_error{dlerror()}; }
  plugin_functions functions{};
  look_up(library, "plugin_allocator", functions.allocator);
  look_up(library, "plugin_description", functions.description);
  look_up(library, "plugin_features", functions.features);
  look_up(library, "plugin_make", functions.make);
  look_up(library, "plugin_end", functions.end);
  look_up(library, "plugin_error", functions.error);
  look_up(library, "plugin_make_stream", functions.make_stream);
  look_up(library, "plugin_end_stream", functions.end_stream);
  look_up(library, "plugin_allocate", functions.allocate);
  look_up(library, "plugin_deallocate", functions.deallocate);
  look_up(library, "plugin_reserved", functions.reserved);
  look_up(library, "plugin_install", functions.install);
  look_up(library, "plugin_uvectors", functions.uvectors);
  return candidates_of(functions);
}

std::vector<candidate> load_plugins(std::string const& folder)
{
  std::vector<std::string> paths;
  for (auto const& entry : std::filesystem::directory_iterator{folder}) {
    auto const& path = entry.path();
    if (path.filename().string().rfind("compare_", 0) == 0 && path.extension() == ".so") { paths.push_back(path); }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<candidate> all;
  for (auto const& path : paths) {
    try {
      auto const offered = load_plugin(path);
      all.insert(all.end(), offered.begin(), offered.end());
    } catch (std::exception const& e) {
      std::fprintf(stderr, "left out: %s\n", e.what());
    }
  }
  return all;
}

namespace {

enum built_in { floor_allocator, perfect_allocator };

/// A counter in place of an allocator, for both built-in candidates.
///
/// Invariant: `live` is the sum of the allocated bytes. It stays within `maximum` for `perfect packing`, and is always 0 for
/// `floor`.
struct built_in_instance {
  std::size_t maximum{};  // 0 for `floor`
  std::size_t live{};
};

void* const some_address = reinterpret_cast<void*>(std::size_t{256});

cudaStream_t make_plain_stream(void*)
{
  cudaStream_t stream{};
  return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess ? stream : nullptr;
}

void* allocate_nothing(void* self, std::size_t bytes, cudaStream_t)
{
  auto& instance = *static_cast<built_in_instance*>(self);
  if (instance.maximum == 0) { return some_address; }
  if (bytes > instance.maximum - instance.live) { return nullptr; }
  instance.live += bytes;
  return some_address;
}

void deallocate_nothing(void* self, void*, std::size_t bytes, cudaStream_t)
{
  auto& instance = *static_cast<built_in_instance*>(self);
  if (instance.maximum != 0) { instance.live -= bytes; }
}

plugin_functions const built_in_functions{
  [](int index) -> char const* {
    return index == floor_allocator ? "floor" : index == perfect_allocator ? "perfect packing" : nullptr;
  },
  [](int index) { return index == floor_allocator ? "does nothing" : "fails only when the sum does not fit"; },
  [](int index) -> unsigned { return index == floor_allocator ? plugin_feature_times : plugin_feature_bounded; },
  [](int index, std::size_t, std::size_t maximum) -> void* {
    return new built_in_instance{index == floor_allocator ? 0 : maximum, 0};
  },
  [](void* self) { delete static_cast<built_in_instance*>(self); },
  []() { return "a CUDA call failed"; },
  make_plain_stream,
  [](void*, cudaStream_t stream) { static_cast<void>(cudaStreamDestroy(stream)); },
  allocate_nothing,
  deallocate_nothing,
  [](void*) -> std::size_t { return 0; },
  [](void*) {},
  [](std::size_t, std::size_t, cudaStream_t) { return 0; },
};

}  // namespace

std::vector<candidate> built_in_candidates() { return candidates_of(built_in_functions); }

}  // namespace compare
