// SPDX-License-Identifier: Apache-2.0
#include <cub/version.cuh>

#ifndef CCCL_OF_THE_PROJECT
#error "the CCCL of the toolkit hides that of the project"
#endif
