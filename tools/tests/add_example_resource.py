# SPDX-License-Identifier: Apache-2.0
"""Adds a resource to a copy of the repository, in the places that CONTRIBUTING.md lists. Used by new_resource_test.py.

    add_example_resource.py COPY
"""

from __future__ import annotations

import sys
from pathlib import Path

HEADER = """\
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <new>

namespace RMM_NAMESPACE {
namespace mr {

/// A resource that allocates blocks of limited size on the host's heap. Use it in tests.
///
/// @code{.cpp}
/// rmm::mr::example_memory_resource example{4096};
/// example.deallocate(example.allocate(1000), 1000);
/// @endcode
class example_memory_resource final : public device_memory_resource {
 public:
  explicit example_memory_resource(std::size_t most) : most_{most} {}

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view) override
  {
    if (bytes > most_) { throw out_of_memory{"larger than the largest block"}; }
    return ::operator new(bytes);
  }

  void do_deallocate(void* ptr, std::size_t, cuda_stream_view) override { ::operator delete(ptr); }

  std::size_t most_;
};

}  // namespace mr
}  // namespace RMM_NAMESPACE
"""

ROW = """\
RMM_RESOURCE(example, example_memory_resource, sources, host, nullptr,
  (required(option_rule{"most", value_form::amount, "size of the largest block", 1})),
  add<example_memory_resource>(sizes["most"]))

RMM_RESOURCE(fixed_size,"""

TESTS = """\
// SPDX-License-Identifier: Apache-2.0
#include <rmm/mr/example_memory_resource.hpp>

#include <gtest/gtest.h>

#include <new>

TEST(ExampleMemoryResource, RefusesWhatIsLargerThanItsLargestBlock)
{
  rmm::mr::example_memory_resource mr{100};
  EXPECT_THROW(static_cast<void>(mr.allocate(101)), std::bad_alloc);
}
"""

CLASS = '''

cdef extern from "rmm/mr/example_memory_resource.hpp":
    pass


cdef extern from "pylibrmm/memory_resource/_owned_resources.hpp" namespace "rmm_python" nogil:
    resource_ptr make_example "rmm_python::make_resource<rmm::mr::example_memory_resource>"(size_t) except +


cdef class ExampleMemoryResource(DeviceMemoryResource):
    """Memory of the host's heap, in blocks of at most `most` bytes."""

    def __cinit__(self, most):
        self.c_obj = make_example(size_of(most))
'''

TYPES = """
class ExampleMemoryResource(DeviceMemoryResource):
    def __new__(cls, most: int | str) -> Self: ...
"""

PLACES = (
    "include/rmm/mr/example_memory_resource.hpp",
    "include/rmm/mr/detail/resource_table.inc",
    "tests/rmm/mr/example_memory_resource_tests.cpp",
    "docs/configuration.md",
    "python/rmm/rmm/pylibrmm/memory_resource/_host.pyx",
    "python/rmm/rmm/pylibrmm/memory_resource/_host.pyi",
)


def with_replaced(text: str, before: str, after: str) -> str:
    if text.count(before) != 1:
        raise ValueError(f"not there once: {before!r}")
    return text.replace(before, after)


def with_resource(place: str, text: str) -> str:
    """Returns the content of the file `place`, given as `text`, with the resource's parts added."""
    if place == PLACES[0]:
        return HEADER
    if place == PLACES[1]:
        include = "#include <rmm/mr/fixed_size_memory_resource.hpp>"
        text = with_replaced(text, include, f"#include <rmm/mr/example_memory_resource.hpp>\n{include}")
        return with_replaced(text, "RMM_RESOURCE(fixed_size,", ROW)
    if place == PLACES[2]:
        return TESTS
    if place == PLACES[3]:
        return with_replaced(text, "| `cuda` | `cudaMalloc` | |\n",
                             "| `cuda` | `cudaMalloc` | |\n| `example` | the host's heap | `most`, which has to be there |\n")
    listed = with_replaced(text, "__all__ = [\n", '__all__ = [\n    "ExampleMemoryResource",\n')
    return listed + (CLASS if place == PLACES[4] else TYPES)


def add(copy: Path) -> None:
    for place in PLACES:
        file = copy / place
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        file.write_text(with_resource(place, text), encoding="utf-8")


if __name__ == "__main__":
    add(Path(sys.argv[1]))
