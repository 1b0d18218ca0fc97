// SPDX-License-Identifier: Apache-2.0
#pragma once

#define CCCL_OF_THE_PROJECT

#include_next <cub/version.cuh>
