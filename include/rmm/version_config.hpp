// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The release whose API this library presents, in three numbers: this one is its year. The build keeps them in step with the
/// file VERSION.
#define RMM_VERSION_MAJOR 24
/// The month of that release.
#define RMM_VERSION_MINOR 8
/// Which one it is of that month, from 0.
#define RMM_VERSION_PATCH 0
