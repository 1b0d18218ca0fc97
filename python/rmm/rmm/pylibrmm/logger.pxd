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
    """Sends what the C++ library logs in the module that calls this to the debug log of the package."""
    set_log_hook(debug_log_function())
