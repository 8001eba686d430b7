#include "compat/layout.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

constexpr LayoutRow plain(const char* name) { return {name, LayoutKind::string}; }
constexpr LayoutRow behind(const char* name, const char* before) {
  return {name, LayoutKind::string, before};
}

constexpr LayoutRow layout_table[] = {
    plain("redis-py"),
    plain("redlock"),
    plain("node-redlock"),
    plain("redlock-universal"),
    plain("redsync"),
    plain("redislock"),
    plain("redlock-py"),
    plain("redlock-rb"),
    plain("aioredlock"),
    plain("rslock"),
    plain("distributedlock"),
    plain("stackexchange"),
    plain("phpredis"),
    behind("pottery", "redlock:"),
    behind("redlocknet", "redlock:"),
    behind("redis-semaphore", "mutex:"),
    {.name = "laravel",
     .kind = LayoutKind::string,
     .part = LayoutPart::required,
     .part_name = "PREFIX"},
    {.name = "shedlock",
     .kind = LayoutKind::string,
     .before = "job-lock:",
     .part = LayoutPart::optional,
     .part_name = "ENV",
     .between = ":",
     .dated = true},
    {.name = "spring",
     .kind = LayoutKind::string,
     .part = LayoutPart::required,
     .part_name = "REGISTRY",
     .between = ":",
     .signal = ReleaseSignal::channel},
    {.name = "python-redis-lock",
     .kind = LayoutKind::string,
     .before = "lock:",
     .signal = ReleaseSignal::list},
    {.name = "redisson", .kind = LayoutKind::redisson},
    {.name = "redisson-fenced", .kind = LayoutKind::redisson, .fenced = true},
    {.name = "symfony", .kind = LayoutKind::symfony},
};

constexpr const char* usual_part = "default";

std::string spelled(const LayoutRow& row) {
  std::string name = row.name;
  if (row.part == LayoutPart::required) return name + ":" + row.part_name;
  if (row.part == LayoutPart::optional) return name + "[:" + row.part_name + "]";
  return name;
}

}  // namespace

std::span<const LayoutRow> layouts() { return layout_table; }

std::string Layout::key_of(const LockKey& key) const {
  return row->before + part + row->between + key.text;
}

const char* Layout::type() const {
  if (kind() == LayoutKind::string) return "string";
  return kind() == LayoutKind::redisson ? "hash" : "zset";
}

bool Layout::may_be_redlock() const {
  return row->kind == LayoutKind::string && row->signal == ReleaseSignal::none;
}

Layout parse_layout(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto found = std::find_if(std::begin(layout_table), std::end(layout_table),
                                  [&](const LayoutRow& row) { return row.name == name; });
  if (found == std::end(layout_table)) {
    throw_usage("no layout is called \"" + escaped(name) +
                "\"; there are: " + joined(layout_table, ", ", spelled));
  }
  Layout layout{found, colon == std::string_view::npos ? "" : std::string(text.substr(colon + 1))};
  const bool has_part = colon != std::string_view::npos;
  if (has_part && found->part == LayoutPart::none) {
    throw_usage(std::string(found->name) + " has no part of its own: write --compat " +
                found->name);
  }
  if (has_part ? layout.part.empty() : found->part == LayoutPart::required) {
    throw_usage("missing part: write --compat " + spelled(*found) + ", as the application has it");
  }
  if (!has_part && found->part == LayoutPart::optional) layout.part = usual_part;
  if (!layout.part.empty()) {
    if (const auto fault = key_fault(layout.part)) throw_usage("the part of the key " + *fault);
  }
  return layout;
}

}  // namespace dlock
