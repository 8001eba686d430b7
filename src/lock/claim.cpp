#include "lock/claim.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <memory>

#include "base/duration.hpp"
#include "base/random.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

bool only_of(std::string_view text, std::string_view punctuation) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           punctuation.find(c) != std::string_view::npos;
  });
}

std::size_t depth_of(std::string_view owner) {
  return 1 + static_cast<std::size_t>(std::count(owner.begin(), owner.end(), '/'));
}

std::string user_name() {
  const uid_t uid = geteuid();
  std::array<char, 4096> texts{};
  passwd entry{};
  passwd* found = nullptr;
  // Most users are in /etc/passwd; NSS takes as long as the lock.
  const std::unique_ptr<FILE, int (*)(FILE*)> users(std::fopen("/etc/passwd", "re"), std::fclose);
  while (users && fgetpwent_r(users.get(), &entry, texts.data(), texts.size(), &found) == 0) {
    if (entry.pw_uid == uid) return entry.pw_name;
  }
  if (getpwuid_r(uid, &entry, texts.data(), texts.size(), &found) == 0 && found != nullptr) {
    return entry.pw_name;
  }
  return std::to_string(uid);
}

}  // namespace

std::optional<std::string> key_fault(std::string_view text) {
  constexpr std::size_t longest_key = 512;
  if (text.empty()) return "is empty";
  if (text.size() > longest_key) return "is longer than 512 bytes";
  if (text.find('\0') != std::string_view::npos) return "holds a NUL";
  if (text.find_first_of("\r\n") != std::string_view::npos) return "holds a line break";
  if (!is_utf8(text)) return "is not UTF-8";
  return std::nullopt;
}

bool Owner::is_or_below(const Owner& other) const {
  // The part of the other owner's path with which this path may begin.
  std::string_view part = other.text;
  const auto begins_with_it = [&] {
    return text.starts_with(part) && (text.size() == part.size() || text[part.size()] == '/');
  };
  const bool may_be_cut = depth_of(text) >= deepest_owner;
  while (!begins_with_it()) {
    const auto slash = part.find('/');
    if (!may_be_cut || slash == std::string_view::npos) return false;
    part.remove_prefix(slash + 1);
  }
  return true;
}

Owner new_owner_below(const std::optional<Owner>& above) {
  constexpr std::size_t bytes_of_a_component = 8;
  const std::string own = random_hex(bytes_of_a_component);
  if (!above) return Owner{own};
  const bool is_full = depth_of(above->text) >= deepest_owner;
  return Owner{above->text.substr(is_full ? above->text.find('/') + 1 : 0) + "/" + own};
}

std::optional<std::string> owner_id_fault(std::string_view text) {
  if (text.empty()) return "is empty";
  if (text.size() > longest_owner_id) return "is longer than 128 characters";
  if (!only_of(text, "._:@-")) return "may hold letters, digits and ._:@- only";
  return std::nullopt;
}

std::optional<std::string> owner_path_fault(std::string_view text) {
  std::size_t depth = 0;
  while (true) {
    const auto slash = text.find('/');
    if (auto fault = owner_id_fault(text.substr(0, slash))) return fault;
    if (++depth > deepest_owner) return "is nested more than 16 deep";
    if (slash == std::string_view::npos) return std::nullopt;
    text.remove_prefix(slash + 1);
  }
}

Claim claim_named(const LockKey& key, const Token& token) {
  Claim claim;
  claim.key = key;
  claim.token = token;
  return claim;
}

Token new_token(const Owner& owner, std::size_t keys) {
  constexpr std::size_t bytes_of_a_token = 16;
  const std::string count = keys == 1 ? "" : "." + std::to_string(keys);
  return Token{owner.text + ":" + random_hex(bytes_of_a_token) + count};
}

std::size_t keys_of(const Token& token) {
  const std::string own = token.text.substr(token.text.rfind(':') + 1);
  const auto dot = own.find('.');
  if (dot == std::string::npos) return 1;
  return static_cast<std::size_t>(parse_number(own.substr(dot + 1), 1, INT_MAX).value_or(1));
}

Owner owner_in(const Token& token) { return Owner{token.text.substr(0, token.text.rfind(':'))}; }

std::optional<std::string> token_fault(std::string_view text) {
  constexpr std::size_t longest_token = deepest_owner * (longest_owner_id + 1) + 40;
  if (text.empty()) return "is empty";
  if (text.size() > longest_token) return "is too long for a token";
  if (!only_of(text, "-._:@/")) return "may hold letters, digits and -._:@/ only";
  return std::nullopt;
}

const char* name_of(Via via) {
  constexpr const char* names[] = {"run", "attach", "acquire"};
  return names[static_cast<std::size_t>(via)];
}

Who this_process(std::string command, std::string label) {
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, HOST_NAME_MAX);
  std::string user = user_name();
  const char* const caller = std::getenv("SUDO_USER");  // NOLINT(concurrency-mt-unsafe)
  if (geteuid() == 0 && caller != nullptr && *caller != 0 && user != caller)
    user += " (" + std::string(caller) + ")";
  return Who{host, getpid(), std::move(user), std::move(command), std::move(label)};
}

std::size_t votes_needed(std::size_t servers, Limit limit) {
  if (limit.unlimited()) return servers / 2 + 1;
  const auto owners = static_cast<std::size_t>(limit.owners);
  // This returns early to avoid overflow: a limit above the number of servers needs all of them.
  if (owners >= servers) return servers;
  return servers * owners / (owners + 1) + 1;
}

}  // namespace dlock
