// SPDX-License-Identifier: Apache-2.0

// A stand-in for PyTorch's libc10.so. It has the names that the plug-in looks for, and calls an allocation function as PyTorch
// does, to tell which exception arrives. With OWN_CONSTRUCTOR the class has its own constructor, as in PyTorch 2.15. Otherwise it
// inherits its base's, as in PyTorch 2.11.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <typeinfo>
#include <utility>

namespace c10 {

struct SourceLocation {
  char const* function;
  char const* file;
  std::uint32_t line;
};

class Error : public std::exception {
 public:
  Error(SourceLocation where, std::string text);
  ~Error() override { ++ended; }
  char const* what() const noexcept override { return text_.c_str(); }

  static int ended;

 private:
  std::string text_;
  SourceLocation where_;
};

int Error::ended = 0;

Error::Error(SourceLocation where, std::string text) : text_{std::move(text)}, where_{where} {}

#ifdef OWN_CONSTRUCTOR
class OutOfMemoryError : public Error {
 public:
  OutOfMemoryError(SourceLocation where, std::string text);
};

OutOfMemoryError::OutOfMemoryError(SourceLocation where, std::string text) : Error{where, std::move(text)} {}
#else
class OutOfMemoryError : public Error {
  using Error::Error;
};

__attribute__((used)) void use_table() { throw OutOfMemoryError{{}, {}}; }
#endif

}  // namespace c10

/// Calls `allocate` and returns which exception arrived: 1 OutOfMemoryError, 2 another Error, 3 std::bad_alloc, 4 any other, 0
/// none.
extern "C" int exception_of(void* (*allocate)(std::size_t, int, void*), std::size_t bytes, char* text, std::size_t size)
{
  try {
    allocate(bytes, 0, nullptr);
  } catch (c10::Error const& error) {
    std::strncpy(text, error.what(), size - 1);
    return typeid(error) == typeid(c10::OutOfMemoryError) ? 1 : 2;
  } catch (std::bad_alloc const& error) {
    std::strncpy(text, error.what(), size - 1);
    return 3;
  } catch (...) {
    return 4;
  }
  return 0;
}

/// Returns how many exceptions were destroyed.
extern "C" int ended() { return c10::Error::ended; }
