# SPDX-License-Identifier: Apache-2.0

cdef extern from * nogil:
    """
    #include <rmm/detail/base/log_hook.hpp>

    namespace {
    [[maybe_unused]] void rmm_set_log_hook(rmm::detail::log_function hook) { rmm::detail::log_hook.store(hook); }
    }  // namespace
    """
    ctypedef void* log_function "rmm::detail::log_function"
    void set_log_hook "rmm_set_log_hook"(log_function hook) noexcept


cdef log_function debug_log_function() noexcept


cdef inline void connect_log() noexcept:
    """Sends messages of the C++ library in the calling module to the package's debug log."""
    set_log_hook(debug_log_function())
