// SPDX-License-Identifier: Apache-2.0
#define RMM_WITHOUT_SPDLOG
#include <rmm/logger.hpp>
