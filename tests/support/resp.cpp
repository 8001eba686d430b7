#include "support/resp.hpp"

#include <cstdlib>

namespace dlock::test {
namespace {

constexpr std::string_view line_end = "\r\n";

/// The number after the type byte of a header line.
long header_number(std::string_view bytes) {
  return std::strtol(std::string(bytes.substr(1, 24)).c_str(), nullptr, 10);
}

/// A client of HTTP sends the body in a packet of its own.
std::optional<std::size_t> http_request_size(std::string_view bytes) {
  const auto end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  constexpr std::string_view length = "\r\nContent-Length: ";
  const auto at = bytes.substr(0, end).find(length);
  std::size_t size = end + 4;
  if (at != std::string_view::npos) {
    size += std::strtoul(std::string(bytes.substr(at + length.size(), 24)).c_str(), nullptr, 10);
  }
  return size <= bytes.size() ? std::optional(size) : std::nullopt;
}

}  // namespace

std::optional<std::size_t> message_size(std::string_view bytes) {
  if (bytes.empty()) return std::nullopt;
  if (bytes.substr(0, bytes.find(line_end)).ends_with(" HTTP/1.1")) return http_request_size(bytes);
  if (std::string_view("+-:$*").find(bytes.front()) == std::string_view::npos) return bytes.size();
  const auto end = bytes.find(line_end);
  if (end == std::string_view::npos) return std::nullopt;
  std::size_t size = end + line_end.size();
  const char type = bytes.front();
  const long count = type == '$' || type == '*' ? header_number(bytes) : -1;
  if (count < 0) return size;
  if (type == '$') {
    size += static_cast<std::size_t>(count) + line_end.size();
    return size <= bytes.size() ? std::optional(size) : std::nullopt;
  }
  for (long i = 0; i < count; ++i) {
    const auto part = message_size(bytes.substr(size));
    if (!part) return std::nullopt;
    size += *part;
  }
  return size;
}

std::vector<std::string> request_words(std::string_view message) {
  if (!message.starts_with('*')) return {std::string(message)};
  std::vector<std::string> words;
  auto at = message.find(line_end);
  while (at != std::string_view::npos && at + line_end.size() < message.size()) {
    message.remove_prefix(at + line_end.size());
    const auto size = static_cast<std::size_t>(header_number(message));
    const auto start = message.find(line_end) + line_end.size();
    words.emplace_back(message.substr(start, size));
    at = start + size;
  }
  return words;
}

std::string request(const std::vector<std::string>& words) {
  std::string text = "*" + std::to_string(words.size()) + "\r\n";
  for (const auto& word : words) text += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  return text;
}

bool is_published(std::string_view message) {
  return message.starts_with("*3\r\n$7\r\nmessage\r\n") ||
         message.starts_with("*3\r\n$8\r\nsmessage\r\n") ||
         message.starts_with("*4\r\n$8\r\npmessage\r\n");
}

}  // namespace dlock::test
