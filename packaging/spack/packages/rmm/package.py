# SPDX-License-Identifier: Apache-2.0

import os

from spack.package import *


class Rmm(CMakePackage):
    """Memory resources and containers for CUDA C++. Header-only.

    The package of the sources that it lies in: `spack repo add packaging/spack && spack install rmm`.
    """

    git = "file://" + os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4))

    license("Apache-2.0")

    version("main", branch="main")

    variant("nvtx", default=False, description="Mark ranges for NVIDIA's profilers")
    variant("simulator", default=False, description="With rmm::cudart_sim, the CUDA runtime simulated on the CPU")
    variant("spdlog", default=False, description="With rmm/logger.hpp on spdlog")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("cuda@12:")
    depends_on("spdlog", when="+spdlog")

    def cmake_args(self):
        return [
            self.define("BUILD_TESTS", False),
            self.define("BUILD_EXAMPLES", False),
            self.define("RMM_BUILD_C_LIBRARY", False),
            self.define("RMM_DOWNLOAD_MISSING", False),
            self.define_from_variant("RMM_NVTX", "nvtx"),
            self.define_from_variant("RMM_BUILD_SIMULATOR", "simulator"),
            self.define_from_variant("RMM_USE_SPDLOG", "spdlog"),
        ]
