// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The RMM release whose API this library provides: its year. Configuring stops if the file VERSION says something else.
#define RMM_VERSION_MAJOR 24
/// The RMM release whose API this library provides: its month.
#define RMM_VERSION_MINOR 8
/// The RMM release whose API this library provides: its patch level, from 0.
#define RMM_VERSION_PATCH 0
