#include "cli/lies_of_lengths.hpp"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cli/lie_parts.hpp"

namespace dlock::test {
namespace {

constexpr std::string_view line_break = "\r\n";
constexpr std::int64_t most_of_32_bits = INT32_MAX;

/// The length that a reply states instead of the true one.
using OtherLength = std::function<std::int64_t(std::int64_t)>;

/// The number that a line begins with, by another; a line that begins with none stays.
std::string with_number(std::string_view line, const OtherLength& other) {
  std::int64_t number = 0;
  const char* const end = line.data() + line.size();
  const auto read = std::from_chars(line.data(), end, number);
  if (read.ec != std::errc()) return std::string(line);
  const std::int64_t told = other(number);
  char digits[20];
  const auto written = std::to_chars(digits, digits + sizeof digits, told).ptr;
  return std::string(digits, written) + std::string(read.ptr, end);
}

/// The lines with their line ends.
std::vector<std::string_view> lines_in(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = text.find(line_break);
    const auto size = end == std::string_view::npos ? text.size() : end + line_break.size();
    lines.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return lines;
}

/// A reply with another length in place of each of a text or an array.
std::string with_resp_lengths(const std::string& truth, const OtherLength& other) {
  std::string text;
  for (const std::string_view line : lines_in(truth)) {
    const bool has_length = line[0] == '$' || line[0] == '*';
    text += has_length ? line[0] + with_number(line.substr(1), other) : std::string(line);
  }
  return text;
}

}  // namespace

void add_lies_of_lengths(std::vector<Lie>& all) {
  const auto add = [&](const std::string& name, const OtherLength& other) {
    all.push_back(made_of_truth("the reply with lengths that are " + name, [=](const auto& truth) {
      return FalseReply{with_resp_lengths(truth, other)};
    }));
  };
  add("one more", [](auto length) { return length + 1; });
  add("one less", [](auto length) { return length - 1; });
  add("none", [](auto) { return 0; });
  add("negative", [](auto length) { return -2 - length; });
  add("gigantic", [](auto) { return most_of_32_bits; });
}

}  // namespace dlock::test
