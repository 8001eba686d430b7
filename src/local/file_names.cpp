#include "local/file_names.hpp"

#include <cstdint>
#include <cstdio>

#include "base/text.hpp"

namespace dlock {
namespace {

constexpr std::size_t longest_plain_name = 200;
constexpr std::size_t length_of_cut = 150;
/// Precedes the hash of a shortened name; file_name() encodes this character in a key.
constexpr char cut_mark = '~';
constexpr std::uint64_t second_basis = 0x9ae16a3b2f90404fu;

std::string file_name(const LockKey& key, std::string_view suffix) {
  std::string name = percent_encoded(key.text, "/~");
  if (name.front() == '.') name.replace(0, 1, "%2E");
  if (name.size() > longest_plain_name) {
    char hash[40];
    std::snprintf(hash, sizeof hash, "%c%016llx%016llx", cut_mark,
                  static_cast<unsigned long long>(fnv1a(key.text)),
                  static_cast<unsigned long long>(fnv1a(key.text, second_basis)));
    name.resize(length_of_cut);
    name += hash;
  }
  return name + std::string(suffix);
}

bool ends_in(std::string_view name, std::string_view suffix) {
  return name.size() > suffix.size() && name.front() != '.' && name.ends_with(suffix);
}

}  // namespace

std::string key_file_name(const LockKey& key) { return file_name(key, key_suffix); }

std::string fence_file_name(const LockKey& resource) { return file_name(resource, ".fence"); }

std::string latch_file_name(const LockKey& key) { return file_name(key, latch_suffix); }

std::optional<LockKey> key_of_file_name(std::string_view name) {
  if (!is_key_file_name(name) && !is_latch_file_name(name)) return std::nullopt;
  name.remove_suffix(name.size() - name.rfind('.'));
  if (name.find(cut_mark) != std::string_view::npos) return std::nullopt;
  LockKey key{percent_decoded(name)};
  if (key_fault(key.text)) return std::nullopt;
  return key;
}

bool is_key_file_name(std::string_view name) { return ends_in(name, key_suffix); }

bool is_latch_file_name(std::string_view name) { return ends_in(name, latch_suffix); }

}  // namespace dlock
