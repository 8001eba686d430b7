#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlock {

/// Returns `text` safe for a terminal or a log: one line, with `\xNN` for every byte of a control
/// character (C0, DEL, C1), a bidirectional control, a line separator or invalid UTF-8, and `\\`
/// for a backslash. dlock shows text from servers, other users or argv only through escaped().
std::string escaped(std::string_view text);

/// Returns `text` with `\xNN` for every byte that is not ASCII, for readers that do not know UTF-8.
std::string ascii_alone(std::string_view text);

struct CodePoint {
  std::uint32_t value;
  std::size_t bytes;
};

/// Decodes the first code point of `text`, which must not be empty; returns nothing if it is not
/// well-formed UTF-8 (Unicode 15, table 3-7).
std::optional<CodePoint> first_code_point(std::string_view text);

/// Whether `text` is UTF-8 throughout: no overlong forms, surrogates or values above U+10FFFF.
bool is_utf8(std::string_view text);

/// Returns `text` with every byte of `special`, every byte up to 0x20, DEL and '%' as `%NN`.
std::string percent_encoded(std::string_view text, std::string_view special = "");
void append_percent_encoded(std::string& out, std::string_view text, std::string_view special = "");

/// The texts of all elements of this name in XML whose elements have no attributes, and whose texts
/// have no entities.
std::vector<std::string> xml_texts(std::string_view xml, const std::string& name);
/// The text of the first such element; empty if there is none.
std::string xml_text(std::string_view xml, const std::string& name);

/// Reverses percent_encoded(); a '%' without two hex digits after it stays.
std::string percent_decoded(std::string_view text);

/// Two lower-case digits for each byte.
std::string hex(std::string_view bytes);

/// Base64 with padding (RFC 4648, section 4).
std::string to_base64(std::string_view bytes);
/// Decodes `text` up to the first character that is not base64.
std::string from_base64(std::string_view text);

/// `text` without the blanks around it.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  return text.substr(0, text.find_last_not_of(blanks) + 1);
}

/// Removes the front of `text` up to and including the first `separator`, and returns the front
/// without the separator. Without a separator it takes all of `text`.
inline std::string_view take_until(std::string_view& text, char separator) {
  const auto piece = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), piece.size() + 1));
  return piece;
}

/// Joins the results of `text` for each element, with `separator` between them.
template <typename List, typename Text>
std::string joined(const List& list, std::string_view separator, const Text& text) {
  std::string all;
  bool first = true;
  for (const auto& each : list) {
    if (!first) all += separator;
    first = false;
    all += text(each);
  }
  return all;
}

template <typename List>
std::string joined(const List& list, std::string_view separator) {
  return joined(list, separator, [](const std::string& each) { return each; });
}

/// Whether the whole `text` matches one of `globs` by the rules of fnmatch(3). `inspect` and
/// `release --force` match keys by this function.
bool matches_any(const std::string& text, const std::vector<std::string>& globs);

/// FNV-1a, 64 bit (http://www.isthe.com/chongo/tech/comp/fnv/); used to detect torn writes and to
/// shorten names. It protects against accidents, not attackers. Another `basis` gives another hash.
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t basis = 0xcbf29ce484222325u) {
  std::uint64_t hash = basis;
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

/// A hash for longer texts, eight bytes at a time. Each step multiplies and then folds the upper
/// half into the lower one, because a multiplication carries only upwards.
inline std::uint64_t block_hash(std::string_view bytes) {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;
  std::uint64_t hash = bytes.size();
  const auto take = [&hash](std::uint64_t word) {
    hash = (hash ^ word) * odd;
    hash ^= hash >> 32;
  };
  std::uint64_t word = 0;
  for (; bytes.size() >= sizeof word; bytes.remove_prefix(sizeof word)) {
    std::memcpy(&word, bytes.data(), sizeof word);
    take(word);
  }
  word = 0;
  std::memcpy(&word, bytes.data(), bytes.size());
  take(word);
  return hash;
}

}  // namespace dlock
