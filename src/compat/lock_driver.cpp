#include "compat/lock_driver.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace dlock {
namespace {

constexpr std::size_t hex_digits_of_a_token = 32;

/// The last part of a token: 32 hex digits; empty if `token` is of another form.
std::string random_part(const Token& token) {
  const std::string digits = token.text.substr(token.text.rfind(':') + 1);
  const bool is_hex = digits.size() == hex_digits_of_a_token &&
                      digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  return is_hex ? digits : "";
}

unsigned digit_value(char digit) {
  return static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

}  // namespace

std::string base64url_of(const Token& token) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  constexpr unsigned bits_of_a_letter = 6;
  std::string out;
  unsigned bits = 0;
  unsigned value = 0;
  for (const char digit : random_part(token)) {
    value = value << 4U | digit_value(digit);
    bits += 4;
    if (bits < bits_of_a_letter) continue;
    bits -= bits_of_a_letter;
    out += letters[value >> bits];
    value &= (1U << bits) - 1;
  }
  if (bits > 0) out += letters[value << (bits_of_a_letter - bits)];
  // No value of a lock can be that of a token that is none of ours.
  return out.empty() ? "no hold: " + token.text : out;
}

std::string uuid_of(const Token& token) {
  std::string digits = random_part(token);
  if (digits.empty()) return "no hold: " + token.text;
  for (const std::size_t at : {20U, 16U, 12U, 8U}) digits.insert(at, "-");
  return digits;
}

Holder foreign_holder(std::string library, const Reply& pttl) {
  Holder holder;
  holder.library = std::move(library);
  if (pttl.integer >= 0) holder.lease_left = milliseconds(pttl.integer);
  holder.limit = exclusive;
  return holder;
}

std::unique_ptr<LockDriver> driver_of(Layout layout, bool cluster) {
  switch (layout.kind()) {
    case LayoutKind::redisson:
      return redisson_driver(std::move(layout), cluster);
    case LayoutKind::symfony:
      return symfony_driver(std::move(layout), cluster);
    case LayoutKind::string:
      break;
  }
  return string_driver(std::move(layout), cluster);
}

}  // namespace dlock
