#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlock {

/// `text` as it may be shown on a terminal or in a log: one line, with `\xNN` for every byte of a
/// control character (C0, DEL, C1), a bidirectional control, a line separator or invalid UTF-8,
/// and `\\` for a backslash. Whatever came from a server, another user or argv goes through here.
std::string escaped(std::string_view text);

/// `text` with `\xNN` for every byte that is not ASCII, for those who cannot read UTF-8.
std::string ascii_alone(std::string_view text);

struct CodePoint {
  std::uint32_t value;
  std::size_t bytes;
};

/// What `text`, which is not empty, begins with; nothing where that is not well-formed UTF-8
/// (Unicode 15, table 3-7).
std::optional<CodePoint> first_code_point(std::string_view text);

/// Whether a code point neither steers a terminal nor breaks or turns a line: escaped() leaves it
/// as it is.
bool shows_as_itself(std::uint32_t code_point);

/// Whether `text` is UTF-8 throughout: no overlong forms, surrogates or values above U+10FFFF.
bool is_utf8(std::string_view text);

/// `text` with every byte of `special`, every byte up to blank, DEL and '%' as `%NN`.
std::string percent_encoded(std::string_view text, std::string_view special = "");
void append_percent_encoded(std::string& out, std::string_view text, std::string_view special = "");

/// The reverse; a '%' without two hex digits behind it stays.
std::string percent_decoded(std::string_view text);

/// Cuts off the front of `text` what stands before the first `separator`, and that too; all of it
/// where there is none. Lines, words and fields are read with it, one after the other.
inline std::string_view take_until(std::string_view& text, char separator) {
  const auto piece = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), piece.size() + 1));
  return piece;
}

/// What `text` makes of each, with `separator` between.
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

/// Whether all of `text` is as one of `globs` says, by the rules of fnmatch(3): what `inspect` and
/// `release --force` may name keys by.
bool matches_any(const std::string& text, const std::vector<std::string>& globs);

/// FNV-1a, 64 bit (http://www.isthe.com/chongo/tech/comp/fnv/): finds torn writes and shortens
/// names. It guards against accidents, not against people. Another `basis` gives another hash.
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t basis = 0xcbf29ce484222325u) {
  std::uint64_t hash = basis;
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

/// The same for longer texts, eight bytes at a time: a product, and its upper half folded into the
/// lower one, which a product alone leaves untouched by what stands above.
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
