# SPDX-License-Identifier: Apache-2.0

"""Conan 2 recipe of the sources that it lies in: `conan create packaging/conan`.

The CUDA toolkit is taken from the machine, as CMake finds it.
"""

import os

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir

required_conan_version = ">=2.0"


class RmmConan(ConanFile):
    name = "rmm"
    description = "Memory resources and containers for CUDA C++"
    license = "Apache-2.0"
    topics = ("cuda", "memory", "allocator", "header-only")
    settings = "os", "compiler", "build_type", "arch"
    options = {"simulator": [True, False], "nvtx": [True, False]}
    default_options = {"simulator": False, "nvtx": False}
    options_description = {
        "simulator": "With rmm::cudart_sim, the CUDA runtime simulated on the CPU, for tests without a GPU",
        "nvtx": "Mark ranges for NVIDIA's profilers",
    }

    @property
    def _sources(self):
        return os.path.join(self.recipe_folder, os.pardir, os.pardir)

    def set_version(self):
        self.version = self.version or load(self, os.path.join(self._sources, "VERSION")).strip()

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "VERSION", "LICENSE", "cmake/*", "include/*", "simulator/*", "tools/gdb/*"):
            copy(self, pattern, self._sources, self.export_sources_folder)

    def configure(self):
        if not self.options.simulator:
            self.settings.rm_safe("compiler.libcxx")

    def package_id(self):
        if not self.info.options.simulator:  # headers alone
            self.info.settings.clear()

    def validate(self):
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 17)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["BUILD_TESTS"] = False
        toolchain.cache_variables["BUILD_EXAMPLES"] = False
        toolchain.cache_variables["RMM_BUILD_C_LIBRARY"] = False
        toolchain.cache_variables["RMM_BUILD_SIMULATOR"] = bool(self.options.simulator)
        toolchain.cache_variables["RMM_DOWNLOAD_MISSING"] = False
        toolchain.cache_variables["RMM_NVTX"] = bool(self.options.nvtx)
        toolchain.cache_variables["RMM_USE_SPDLOG"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))

    def package_info(self):
        # The package's own CMake files, which find what it needs.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "rmm")]
        self.cpp_info.libs = ["cudart_sim"] if self.options.simulator else []
        self.cpp_info.bindirs = []
