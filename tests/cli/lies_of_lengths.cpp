#include "cli/lies_of_lengths.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "cli/lie_parts.hpp"
#include "support/jute.hpp"

namespace dlock::test {
namespace {

constexpr std::string_view line_break = "\r\n";
constexpr std::int64_t most_of_32_bits = INT32_MAX;

/// Replaces the number at the start of the line; a line without one stays.
std::string with_number(std::string_view line, const OtherLength& other, int base) {
  std::int64_t number = 0;
  const char* const end = line.data() + line.size();
  const auto read = std::from_chars(line.data(), end, number, base);
  if (read.ec != std::errc()) return std::string(line);
  const std::int64_t told = other(number);
  char digits[20];
  const auto written = std::to_chars(digits, digits + sizeof digits, told, base).ptr;
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

/// The length field at the front of each message in a stream.
struct LengthField {
  std::size_t at = 0;
  std::size_t bytes = 4;
  std::size_t from = 0;  ///< the start of the bytes that it counts
  bool little_endian = false;
};

std::string with_fields(std::string text, const LengthField& field, const OtherLength& other) {
  std::size_t start = 0;
  while (start + field.at + field.bytes <= text.size()) {
    const auto shift_of = [&](std::size_t i) {
      return 8 * (field.little_endian ? i : field.bytes - 1 - i);
    };
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < field.bytes; ++i) {
      length |= std::uint64_t{static_cast<unsigned char>(text[start + field.at + i])}
                << shift_of(i);
    }
    const auto told = static_cast<std::uint64_t>(other(static_cast<std::int64_t>(length)));
    for (std::size_t i = 0; i < field.bytes; ++i) {
      text[start + field.at + i] = static_cast<char>(told >> shift_of(i));
    }
    // Bytes that are no message, such as the answer to a TLS request, have no successor.
    if (length > text.size()) break;
    start += field.from + static_cast<std::size_t>(length);
  }
  return text;
}

}  // namespace

std::string with_resp_lengths(const std::string& truth, const OtherLength& other) {
  std::string text;
  for (const std::string_view line : lines_in(truth)) {
    const bool has_length = line[0] == '$' || line[0] == '*';
    text += has_length ? line[0] + with_number(line.substr(1), other, 10) : std::string(line);
  }
  return text;
}

std::string with_http_lengths(const std::string& truth, const OtherLength& other) {
  constexpr std::string_view header = "content-length: ";
  std::string text;
  bool in_header = truth.starts_with("HTTP/");
  const bool in_chunks = !in_header || truth.find("chunked") != std::string::npos;
  for (const std::string_view line : lines_in(truth)) {
    std::string name(line.substr(0, header.size()));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    if (in_header && name == header) {
      text += line.substr(0, header.size());
      text += with_number(line.substr(header.size()), other, 10);
    } else {
      text += !in_header && in_chunks ? with_number(line, other, 16) : std::string(line);
    }
    if (line == line_break) in_header = false;
  }
  return text;
}

std::string with_postgres_lengths(const std::string& truth, const OtherLength& other) {
  return with_fields(truth, {1, 4, 1, false}, other);
}

std::string with_mariadb_lengths(const std::string& truth, const OtherLength& other) {
  return with_fields(truth, {0, 3, 4, true}, other);
}

std::string with_jute_lengths(const std::string& truth, const OtherLength& other) {
  return with_fields(truth, {0, 4, 4, false}, other);
}

void add_lies_of_lengths(WithLengths with, std::vector<Lie>& all) {
  const auto add = [&](const std::string& name, const OtherLength& other) {
    all.push_back(made_of_truth("the reply with lengths that are " + name,
                                [=](const auto& truth) { return FalseReply{with(truth, other)}; }));
  };
  add("one more", [](auto length) { return length + 1; });
  add("one less", [](auto length) { return length - 1; });
  add("none", [](auto) { return 0; });
  add("negative", [](auto length) { return -2 - length; });
  add("gigantic", [](auto) { return most_of_32_bits; });
}

}  // namespace dlock::test
