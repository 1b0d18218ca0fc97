// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/error.hpp>

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <typeinfo>

namespace rmm_python {

/// Throws the exception that PyTorch turns into torch.OutOfMemoryError. PyTorch has no interface for plug-ins that does this.
///
/// The class is found by its symbol in the running PyTorch, whose own functions construct and destroy the object. The code assumes only how
/// the constructor is called, that std::exception is the first base, and a size of at most 1024 bytes. Found in PyTorch 2.11 and 2.15.
/// If it is not found, rmm::out_of_memory is thrown instead.
class torch_error {
 public:
  [[noreturn]] RMM_COLD static void throw_out_of_memory(std::string const& text)
  {
    static torch_error const error;
    if (error.is_known()) { error.raise(text); }
    throw rmm::out_of_memory{text};
  }

 private:
  /// c10::SourceLocation
  struct source_location {
    char const* function;
    char const* file;
    std::uint32_t line;
  };

  using constructor = void (*)(void* self, source_location where, std::string text);

  static constexpr std::size_t largest_object = 1024;  // c10::Error has 128 bytes

  torch_error() noexcept
  {
    construct_ = function(
      "_ZN3c1016OutOfMemoryErrorC1ENS_14SourceLocationENSt7__cxx1112basic_"
      "stringIcSt11char_traitsIcESaIcEEE");
    if (construct_ == nullptr) {  // PyTorch 2.11 inherits the constructor: constructs the base, which has all members
      construct_ = function("_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
      table_     = find("_ZTVN3c1016OutOfMemoryErrorE");
      is_known_  = table_ != nullptr;
    } else {
      is_known_ = true;
    }
    type_ = static_cast<std::type_info*>(find("_ZTIN3c1016OutOfMemoryErrorE"));
  }

  [[nodiscard]] bool is_known() const noexcept { return is_known_ && construct_ != nullptr && type_ != nullptr; }

  [[noreturn]] void raise(std::string const& text) const
  {
    void* const object = abi::__cxa_allocate_exception(largest_object);
    try {
      construct_(object, source_location{"allocate", "rmm", 0}, text);
    } catch (...) {
      abi::__cxa_free_exception(object);
      throw;
    }
    if (table_ != nullptr) {
      // the first two entries of the symbol are an offset and the type
      *static_cast<void**>(object) = static_cast<void**>(table_) + 2;
    }
    abi::__cxa_throw(object, type_, [](void* thrown) { static_cast<std::exception*>(thrown)->~exception(); });
  }

  [[nodiscard]] static constructor function(char const* name) noexcept
  {
    return reinterpret_cast<constructor>(find(name));
  }

  /// Finds a symbol in PyTorch's libraries, if they are loaded. Python loads them with RTLD_LOCAL, so they have to be searched by name.
  [[nodiscard]] static void* find(char const* name) noexcept
  {
    for (auto const* const library : {"libc10.so", "libc10_cuda.so"}) {
      void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
      if (handle == nullptr) { continue; }
      void* const found = dlsym(handle, name);
      dlclose(handle);  // PyTorch keeps the library loaded
      if (found != nullptr) { return found; }
    }
    return nullptr;
  }

  constructor construct_{};
  void* table_{};  // set if the base's constructor is used
  std::type_info* type_{};
  bool is_known_{false};
};

}  // namespace rmm_python
