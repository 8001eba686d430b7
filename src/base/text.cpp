#include "base/text.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>

namespace dlock {
namespace {

unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

void append_hex(std::string& out, const char* lead, unsigned byte) {
  static constexpr char digits[] = "0123456789ABCDEF";
  out += lead;
  out += digits[byte >> 4];
  out += digits[byte & 15];
}

/// Indexed by byte: true if percent-encoding leaves the byte as it is. The table saves time: a list
/// of locks has thousands of fields, and every byte is looked up.
constexpr auto plain_bytes = [] {
  std::array<bool, 256> plain{};
  for (unsigned byte = 0x21; byte < plain.size(); ++byte) plain[byte] = byte != 0x7F;
  plain['%'] = false;
  return plain;
}();

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Whether a code point is harmless on a terminal: no control character, line separator or
/// direction control.
bool shows_as_itself(std::uint32_t c) {
  if (c < 0x20 || (c >= 0x7F && c <= 0x9F)) return false;
  if (c == 0x200E || c == 0x200F || c == 0x061C) return false;  // direction marks
  if (c >= 0x2028 && c <= 0x202E) return false;                 // line separators, embeddings
  return c < 0x2066 || c > 0x2069;                              // isolates
}

constexpr std::string_view digits_of_base64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::optional<CodePoint> first_code_point(std::string_view text) {
  const unsigned lead = byte_at(text, 0);
  if (lead < 0x80) return CodePoint{lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return std::nullopt;
  std::uint32_t value = lead & (0xFFu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte_at(text, i) & 0xC0) != 0x80) return std::nullopt;
    value = value << 6 | (byte_at(text, i) & 0x3F);
  }
  static constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < least[bytes] || value > 0x10FFFF || surrogate) return std::nullopt;
  return CodePoint{value, bytes};
}

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto point = first_code_point(text);
    const std::size_t bytes = point ? point->bytes : 1;
    if (text.front() == '\\') {
      out += "\\\\";
    } else if (point && shows_as_itself(point->value)) {
      out += text.substr(0, bytes);
    } else {
      for (std::size_t i = 0; i < bytes; ++i) append_hex(out, "\\x", byte_at(text, i));
    }
    text.remove_prefix(bytes);
  }
  return out;
}

std::string ascii_alone(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80) {
      out += c;
    } else {
      append_hex(out, "\\x", static_cast<unsigned char>(c));
    }
  }
  return out;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto point = first_code_point(text);
    if (!point) return false;
    text.remove_prefix(point->bytes);
  }
  return true;
}

void append_percent_encoded(std::string& out, std::string_view text, std::string_view special) {
  const auto is_plain = [&](char c) {
    return plain_bytes[static_cast<unsigned char>(c)] &&
           (special.empty() || special.find(c) == std::string_view::npos);
  };
  while (!text.empty()) {
    const auto end = std::find_if_not(text.begin(), text.end(), is_plain);
    const auto plain = static_cast<std::size_t>(end - text.begin());
    out.append(text.substr(0, plain));
    if (end == text.end()) return;
    append_hex(out, "%", byte_at(text, plain));
    text.remove_prefix(plain + 1);
  }
}

std::string percent_encoded(std::string_view text, std::string_view special) {
  std::string out;
  append_percent_encoded(out, text, special);
  return out;
}

std::string percent_decoded(std::string_view text) {
  if (text.find('%') == std::string_view::npos) return std::string(text);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool pair = text[i] == '%' && i + 2 < text.size();
    const int high = pair ? hex_value(text[i + 1]) : -1;
    const int low = pair ? hex_value(text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

bool matches_any(const std::string& text, const std::vector<std::string>& globs) {
  return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
    return fnmatch(glob.c_str(), text.c_str(), 0) == 0;
  });
}

std::string hex(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const auto group = bytes.substr(at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (i < group.size() ? static_cast<unsigned char>(group[i]) : 0u);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text += i <= group.size() ? digits_of_base64[bits >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

std::string from_base64(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  int known = 0;
  for (const char c : text) {
    const auto digit = digits_of_base64.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    known += 6;
    if (known < 8) continue;
    known -= 8;
    bytes += static_cast<char>(bits >> known & 255);
  }
  return bytes;
}

std::vector<std::string> xml_texts(std::string_view xml, const std::string& name) {
  const std::string begin = "<" + name + ">", end = "</" + name + ">";
  std::vector<std::string> texts;
  for (auto at = xml.find(begin); at != std::string_view::npos; at = xml.find(begin, at)) {
    at += begin.size();
    const auto length = xml.substr(at).find(end);
    if (length == std::string_view::npos) break;
    texts.emplace_back(xml.substr(at, length));
    at += length;
  }
  return texts;
}

std::string xml_text(std::string_view xml, const std::string& name) {
  auto texts = xml_texts(xml, name);
  return texts.empty() ? "" : std::move(texts.front());
}

}  // namespace dlock
