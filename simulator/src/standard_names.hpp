// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace cudasim {

/// Whether a symbol names a function of the C++ library's headers (namespaces std, __gnu_cxx and cuda::std), which the
/// compiler puts into the program. Understands the Itanium C++ ABI; all other names count as the program's.
[[nodiscard]] bool is_standard_name(std::string_view symbol) noexcept;

/// The demangled name of a function, or the symbol if it is no C++ name.
[[nodiscard]] std::string written_name(char const* symbol);

/// The first lambda of the program that a demangled name mentions: "f()::{lambda()#1}" in
/// "std::_Function_handler<void (), f()::{lambda()#1}>::_M_invoke(std::_Any_data const&)". Compilers put the code of a lambda
/// into the function of the library that calls it. Empty if there is none; lambdas of the library do not count.
[[nodiscard]] std::string_view lambda_of_program(std::string_view function) noexcept;

}  // namespace cudasim
