// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/resource_concepts.hpp>
#include <rmm/detail/resource_facade.hpp>

#include <cstddef>
#include <type_traits>

namespace RMM_NAMESPACE {
namespace detail {

// The reference class of libcu++ that T is or derives from; void if T is not one. A T& is none: g++ asks about it when it warns of a
// variable that shadows another one.
template <class... Properties>
cccl_sync_ref<Properties...> cccl_ref_of(cccl_sync_ref<Properties...> const*);
template <class... Properties>
cccl_async_ref<Properties...> cccl_ref_of(cccl_async_ref<Properties...> const*);
void cccl_ref_of(...);

template <class T>
using cccl_ref_t = decltype(cccl_ref_of(static_cast<std::remove_reference_t<T>*>(nullptr)));
template <class T>
inline constexpr bool is_resource_ref = !std::is_void_v<cccl_ref_t<T>>;

// Whether a reference of class Base may refer to a Resource.
template <class Base>
struct referable;
template <class... Properties>
struct referable<cccl_sync_ref<Properties...>> {
  template <class Resource>
  static constexpr bool value = polyfill::resource_with<Resource, Properties...>;
};
template <class... Properties>
struct referable<cccl_async_ref<Properties...>> {
  template <class Resource>
  static constexpr bool value = polyfill::async_resource_with<Resource, Properties...>;
};

template <class Base, class T>
constexpr bool can_refer_to()
{
  if constexpr (!std::is_class_v<T> || std::is_const_v<T> || is_resource_ref<T>) {
    return false;
  } else {
    return referable<Base>::template value<T>;
  }
}

/// Whether Other is a libcu++ reference that converts to Base: it has all properties of Base, and is stream-ordered if Base is.
template <class Base, class Other>
constexpr bool can_narrow_from()
{
  if constexpr (is_resource_ref<Other>) {
    return std::is_convertible_v<cccl_ref_t<Other> const&, Base>;
  } else {
    return false;
  }
}

/// A non-owning reference to a memory resource, two words long and cheap to copy. The resource has to outlive its use.
///
/// Converts from a resource, a pointer to one, and a reference with more properties. Derives from `Base`, the reference class of the
/// installed libcu++, and adds the names that other releases of RMM and libcu++ use for the calls. Calls without an alignment pass
/// alignof(std::max_align_t). References are equal if they were made from one static type and the resources are equal.
template <class Base>
class cccl_resource_ref : public Base {
 public:
  template <class Resource, std::enable_if_t<can_refer_to<Base, Resource>(), int> = 0>
  cccl_resource_ref(Resource& resource) noexcept : cccl_resource_ref{&resource}
  {}

  template <class Resource, std::enable_if_t<can_refer_to<Base, Resource>(), int> = 0>
  cccl_resource_ref(Resource* resource) noexcept : Base{refer_to(resource)}
  {}

  template <class Ref, std::enable_if_t<can_narrow_from<Base, Ref>(), int> = 0>
  cccl_resource_ref(Ref const& other) noexcept : Base{static_cast<cccl_ref_t<Ref> const&>(other)}
  {}

  void* allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) const
  {
    return allocate_sync(bytes, alignment);
  }

  void deallocate(void* ptr, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) const
  {
    deallocate_sync(ptr, bytes, alignment);
  }

  void* allocate_sync(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) const
  {
    Base target{*this};  // Base's functions are not const
    return cccl_allocate_sync(target, bytes, alignment);
  }

  void deallocate_sync(void* ptr, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) const
  {
    Base target{*this};
    cccl_deallocate_sync(target, ptr, bytes, alignment);
  }

#if CCCL_VERSION < 3002000
  // libcu++ up to 3.1 compares the types of two resources by a function pointer in their tables of functions. Shared objects of a
  // process may share a table but have copies of that function, so equal tables also count as equal types here. The overloads for Base
  // make comparisons with a Base unambiguous.
  [[nodiscard]] friend bool operator==(cccl_resource_ref const& lhs, cccl_resource_ref const& rhs)
  {
    return lhs.__static_vtable == rhs.__static_vtable ? lhs.__static_vtable->__equal_fn(lhs.__object, rhs.__object)
                                                      : static_cast<Base const&>(lhs) == static_cast<Base const&>(rhs);
  }
  [[nodiscard]] friend bool operator!=(cccl_resource_ref const& lhs, cccl_resource_ref const& rhs)
  {
    return !(lhs == rhs);
  }
  [[nodiscard]] friend bool operator==(cccl_resource_ref const& lhs, Base const& rhs)
  {
    return lhs == cccl_resource_ref{rhs};
  }
  [[nodiscard]] friend bool operator!=(cccl_resource_ref const& lhs, Base const& rhs) { return !(lhs == rhs); }
  [[nodiscard]] friend bool operator==(Base const& lhs, cccl_resource_ref const& rhs) { return rhs == lhs; }
  [[nodiscard]] friend bool operator!=(Base const& lhs, cccl_resource_ref const& rhs) { return !(rhs == lhs); }
#endif

 private:
  template <class Resource>
  [[nodiscard]] static Base refer_to(Resource* resource) noexcept
  {
    if constexpr (needs_facade<Resource>) {
      return as_base(resource_facade<Resource>::of(resource));
    } else {
      return as_base(resource);
    }
  }

  // The pointer may be null. libcu++ from 3.2 on takes only a C++ reference, and keeps its address. For a null pointer it gets an
  // address that is not null but aligned, and never read.
  template <class Resource>
  [[nodiscard]] static Base as_base(Resource* resource) noexcept
  {
    if constexpr (std::is_constructible_v<Base, Resource*>) {
      return Base{resource};
    } else {
      return Base{resource != nullptr ? *resource : *reinterpret_cast<Resource*>(alignof(Resource))};
    }
  }
};

/// A reference to a stream-ordered memory resource.
template <class Base>
class cccl_async_resource_ref : public cccl_resource_ref<Base> {
 public:
  using cccl_resource_ref<Base>::cccl_resource_ref;
  using cccl_resource_ref<Base>::allocate;
  using cccl_resource_ref<Base>::deallocate;

  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view stream) const
  {
    return allocate(stream, bytes, alignment);
  }

  void* allocate_async(std::size_t bytes, cuda_stream_view stream) const { return allocate(stream, bytes); }

  void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream_view stream) const
  {
    deallocate(stream, ptr, bytes, alignment);
  }

  void deallocate_async(void* ptr, std::size_t bytes, cuda_stream_view stream) const { deallocate(stream, ptr, bytes); }

  void* allocate(cuda_stream_view stream, std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) const
  {
    Base target{*this};
    return cccl_allocate(target, stream, bytes, alignment);
  }

  void deallocate(cuda_stream_view stream,
                  void* ptr,
                  std::size_t bytes,
                  std::size_t alignment = alignof(std::max_align_t)) const
  {
    Base target{*this};
    cccl_deallocate(target, stream, ptr, bytes, alignment);
  }
};

}  // namespace detail
}  // namespace RMM_NAMESPACE

#if CCCL_VERSION < 2007000
// References of libcu++ up to 2.6 take every class with allocation functions for a resource, except the classes for which this variable
// is true. From 2.7 on they recognise classes that derive from them.
namespace cuda::mr {
template <class Base>
inline constexpr bool _Is_basic_resource_ref<::rmm::detail::cccl_resource_ref<Base>> = true;
template <class Base>
inline constexpr bool _Is_basic_resource_ref<::rmm::detail::cccl_resource_ref<Base> const> = true;
template <class Base>
inline constexpr bool _Is_basic_resource_ref<::rmm::detail::cccl_async_resource_ref<Base>> = true;
template <class Base>
inline constexpr bool _Is_basic_resource_ref<::rmm::detail::cccl_async_resource_ref<Base> const> = true;
}  // namespace cuda::mr
#endif
