// SPDX-License-Identifier: Apache-2.0

// A small data frame: nullable columns and tables of them in device memory, with the operations of a library for such frames.

#include "expect.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/limiting_resource_adaptor.hpp>
#include <rmm/mr/device/per_device_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace frame {

/// Values of one type, each of which may be missing.
class column {
 public:
  column(std::vector<std::optional<std::int64_t>> const& values,
         rmm::cuda_stream_view stream,
         rmm::device_async_resource_ref mr = rmm::mr::get_current_device_resource())
    : values_(values.size(), stream, mr), valid_{values.size(), stream, mr}, missing_{0, stream, mr}
  {
    std::vector<std::int64_t> host_values(values.size());
    std::vector<std::uint8_t> host_valid(values.size());
    for (std::size_t row = 0; row < values.size(); ++row) {
      host_values[row] = values[row].value_or(0);
      host_valid[row]  = values[row].has_value() ? 1 : 0;
    }
    upload(values_.data(), host_values.data(), values_.size() * sizeof(std::int64_t), stream);
    upload(valid_.data(), host_valid.data(), valid_.size(), stream);
    std::int64_t const missing = std::count(host_valid.begin(), host_valid.end(), std::uint8_t{0});
    missing_.set_value_async(missing, stream);
    stream.synchronize();  // before what is on the host goes
  }

  /// Takes over memory that somebody else has filled.
  column(rmm::device_buffer&& values, rmm::device_buffer&& valid, rmm::cuda_stream_view stream)
    : values_(values.size() / sizeof(std::int64_t), stream, values.memory_resource()),
      valid_{std::move(valid)},
      missing_{0, stream, values.memory_resource()}
  {
    expect_success(cudaMemcpyAsync(values_.data(), values.data(), values.size(), cudaMemcpyDefault, stream.value()));
  }

  column(column const& other, rmm::cuda_stream_view stream, rmm::device_async_resource_ref mr)
    : values_{other.values_, stream, mr}, valid_{other.valid_, stream, mr}, missing_{other.missing_, stream, mr}
  {}

  [[nodiscard]] std::size_t size() const { return values_.size(); }
  [[nodiscard]] std::int64_t missing(rmm::cuda_stream_view stream) const { return missing_.value(stream); }

  [[nodiscard]] std::optional<std::int64_t> at(std::size_t row, rmm::cuda_stream_view stream) const
  {
    auto const value = values_.element(row, stream);
    std::uint8_t valid{};
    expect_success(cudaMemcpyAsync(
      &valid, static_cast<std::uint8_t const*>(valid_.data()) + row, 1, cudaMemcpyDefault, stream.value()));
    stream.synchronize();
    return valid != 0 ? std::optional{value} : std::nullopt;
  }

  [[nodiscard]] std::vector<std::optional<std::int64_t>> to_host(rmm::cuda_stream_view stream) const
  {
    std::vector<std::optional<std::int64_t>> result;
    for (std::size_t row = 0; row < size(); ++row) { result.push_back(at(row, stream)); }
    return result;
  }

  /// Adds the rows of `other`. Unchanged if that fails.
  void append(column const& other, rmm::cuda_stream_view stream)
  {
    auto const before = size();
    auto const total  = before + other.size();
    values_.reserve(total, stream);
    valid_.reserve(total, stream);
    values_.resize(total, stream);
    valid_.resize(total, stream);
    upload(values_.element_ptr(before), other.values_.data(), other.size() * sizeof(std::int64_t), stream);
    upload(static_cast<std::uint8_t*>(valid_.data()) + before, other.valid_.data(), other.size(), stream);
    auto const missing_now = missing(stream) + other.missing(stream);
    missing_.set_value_async(missing_now, stream);
    stream.synchronize();
  }

  /// Keeps the first `rows` rows and gives back what the others took.
  void truncate(std::size_t rows, rmm::cuda_stream_view stream)
  {
    values_.resize(rows, stream);
    values_.shrink_to_fit(stream);
    valid_.resize(rows, stream);
    valid_.shrink_to_fit(stream);
  }

  void erase(std::size_t row, rmm::cuda_stream_view stream)
  {
    values_.set_element_to_zero_async(row, stream);
    expect_success(cudaMemsetAsync(static_cast<std::uint8_t*>(valid_.data()) + row, 0, 1, stream.value()));
    auto const missing_now = missing(stream) + 1;
    missing_.set_value_async(missing_now, stream);
    stream.synchronize();
  }

  /// Hands the memory over: values and validity.
  [[nodiscard]] std::pair<rmm::device_buffer, rmm::device_buffer> release()
  {
    return {values_.release(), std::move(valid_)};
  }

 private:
  static void upload(void* to, void const* from, std::size_t bytes, rmm::cuda_stream_view stream)
  {
    if (bytes > 0) { expect_success(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.value())); }
  }

  rmm::device_uvector<std::int64_t> values_;
  rmm::device_buffer valid_;
  rmm::device_scalar<std::int64_t> missing_;
};

/// Columns by name.
class table {
 public:
  void add(std::string const& name, column&& values) { columns_.emplace(name, std::move(values)); }
  [[nodiscard]] column& operator[](std::string const& name) { return columns_.at(name); }
  [[nodiscard]] std::size_t width() const { return columns_.size(); }

 private:
  std::unordered_map<std::string, column> columns_;
};

}  // namespace frame

namespace {

using frame::column;
using values = std::vector<std::optional<std::int64_t>>;

void builds_and_reads(rmm::cuda_stream_view stream)
{
  values const expected{1, std::nullopt, 3};
  column const numbers{expected, stream};
  expect(numbers.to_host(stream) == expected, "what was put in comes out");
  expect(numbers.missing(stream) == 1, "missing values are counted");
  column const none{{}, stream};
  expect(none.to_host(stream).empty(), "a column may be empty");
}

void appends_and_truncates(rmm::cuda_stream_view stream)
{
  column numbers{{1, 2}, stream};
  numbers.append(column{{std::nullopt, 4}, stream}, stream);
  expect(numbers.to_host(stream) == values{1, 2, std::nullopt, 4}, "rows are added");
  expect(numbers.missing(stream) == 1, "missing rows are added");
  numbers.erase(0, stream);
  numbers.truncate(3, stream);
  expect(numbers.to_host(stream) == values{std::nullopt, 2, std::nullopt}, "rows are taken away");
}

void hands_over(rmm::cuda_stream_view stream)
{
  column numbers{{5, 6}, stream};
  auto [content, valid] = numbers.release();
  expect(numbers.size() == 0 && content.size() == 2 * sizeof(std::int64_t), "memory is handed over");
  auto const owned = std::make_unique<column>(std::move(content), std::move(valid), stream);
  expect(owned->to_host(stream) == values{5, 6}, "and taken over");
}

void copies_to_another_resource(rmm::cuda_stream_view stream, rmm::mr::device_memory_resource* upstream)
{
  rmm::mr::statistics_resource_adaptor<rmm::mr::device_memory_resource> counted{upstream};
  {
    column const original{{1, 2, 3}, stream};
    column const copy{original, stream, &counted};
    expect(counted.get_allocations_counter().value == 3, "the copy is in the resource that was named");
    expect(copy.to_host(stream) == original.to_host(stream), "a copy has the same rows");
  }
  expect(counted.get_bytes_counter().value == 0, "everything goes back");
}

void survives_lack_of_memory(rmm::cuda_stream_view stream, rmm::mr::device_memory_resource* upstream)
{
  rmm::mr::limiting_resource_adaptor limited{upstream, 4096};
  column numbers{{1, 2, 3}, stream, &limited};
  column const many{values(1000, 7), stream};
  auto const before = limited.get_allocated_bytes();
  bool refused      = false;
  try {
    numbers.append(many, stream);
  } catch (rmm::out_of_memory const& error) {
    refused = std::string{error.what()}.find("Exceeded memory limit") != std::string::npos;
  }
  expect(refused, "the limit is kept");
  expect(limited.get_allocated_bytes() == before, "what failed took nothing");
  expect(numbers.to_host(stream) == values{1, 2, 3}, "what failed changed nothing");
}

void works_on_many_streams()
{
  rmm::cuda_stream_pool streams{4};
  frame::table numbers;
  for (int i = 0; i < 8; ++i) { numbers.add(std::to_string(i), column{values(100, i), streams.get_stream()}); }
  expect(numbers.width() == 8, "a table has its columns");
  auto const stream = streams.get_stream();
  for (int i = 0; i < 8; ++i) {
    auto const rows = numbers[std::to_string(i)].to_host(stream);
    expect(rows == values(100, i), "columns made on other streams are intact");
  }
}

void program()
{
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{&cuda, 1 << 20, 1 << 24};
  auto* const previous = rmm::mr::set_current_device_resource(&pool);
  {
    rmm::cuda_stream const stream;
    builds_and_reads(stream);
    appends_and_truncates(stream);
    hands_over(stream);
    copies_to_another_resource(stream, &pool);
    survives_lack_of_memory(stream, &pool);
    works_on_many_streams();
    builds_and_reads(rmm::cuda_stream_default);
    stream.synchronize();
  }
  rmm::mr::set_current_device_resource(previous);
}

}  // namespace

int main() { return run(program); }
