// SPDX-License-Identifier: Apache-2.0
#pragma once

// The release whose API this library presents. The build keeps these numbers in step with the file
// VERSION.

#define RMM_VERSION_MAJOR 24
#define RMM_VERSION_MINOR 8
#define RMM_VERSION_PATCH 0
