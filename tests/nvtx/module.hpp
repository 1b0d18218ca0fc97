// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// What a shared object of these tests can do. It uses RMM and NVTX like any library of a program, and has a pool that tracks tags.
class nvtx_module {
 public:
  virtual ~nvtx_module() = default;

  virtual void* allocate(std::size_t bytes)                                  = 0;
  virtual void deallocate(void* ptr, std::size_t bytes)                      = 0;
  virtual void push(char const* name)                                        = 0;  ///< begins a range
  virtual void pop()                                                         = 0;
  virtual void with_tag(char const* name, std::function<void()> const& body) = 0;  ///< calls body() in a tag scope
  virtual void begin_tag(char const* name)       = 0;  ///< begins a tag scope; only one at a time
  virtual void end_tag()                         = 0;
  virtual void trace_to(std::string const& file) = 0;  ///< traces later allocations

  [[nodiscard]] virtual std::string holders() const            = 0;  ///< such as "a 100, b 50": live bytes by tag
  [[nodiscard]] virtual std::string report_of_failure()        = 0;
  [[nodiscard]] virtual std::string tag() const                = 0;  ///< the current one
  [[nodiscard]] virtual std::uint32_t tag_number() const       = 0;
  [[nodiscard]] virtual std::vector<std::string> traced_tags() = 0;  ///< the tag of each event
};

/// The shared object has it as `make_nvtx_module`. The caller destroys the object.
using nvtx_module_maker = nvtx_module* (*)();
