// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tools/recorded/log_parser.hpp>  // the header's path in RMM, for programs that include it
