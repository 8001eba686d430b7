#include "redis/slot_map.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/error.hpp"

namespace dlock {
namespace {

constexpr int slot_count = 16384;

/// Parses the last word of `MOVED 3999 10.0.0.1:6381`. An IPv6 address has no brackets there; a
/// node that does not know its own host names only the port.
std::optional<Redirection> redirection_to(Redirection::Kind kind, std::string_view text) {
  const auto place = text.substr(text.rfind(' ') + 1);
  const auto colon = place.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const bool same_host = colon == 0;
  auto to = announced(same_host ? "same" : place.substr(0, colon), place.substr(colon + 1));
  if (!to) return std::nullopt;
  if (same_host) to->host.clear();
  return Redirection{kind, *to};
}

std::uint16_t crc16(std::string_view bytes) {
  constexpr std::uint16_t polynomial = 0x1021;
  std::uint16_t crc = 0;
  for (const char byte : bytes) {
    crc = static_cast<std::uint16_t>(crc ^ (static_cast<unsigned char>(byte) << 8));
    for (int bit = 0; bit < 8; ++bit) {
      const bool carry = (crc & 0x8000) != 0;
      crc = static_cast<std::uint16_t>((crc << 1) ^ (carry ? polynomial : 0));
    }
  }
  return crc;
}

[[noreturn]] void no_map() {
  throw_unavailable("its answer to CLUSTER SLOTS cannot be understood");
}

int slot_in(const Reply& reply) {
  const bool fits =
      reply.kind == Reply::Kind::integer && reply.integer >= 0 && reply.integer < slot_count;
  if (!fits) no_map();
  return static_cast<int>(reply.integer);
}

/// Parses `[host, port, id, ...]`. A node that does not know its own host sends nil, "" or "?". The
/// result is empty if the address is impossible.
std::optional<NodeAddress> node_in(const Reply& reply, const NodeAddress& asked) {
  if (!reply.is_array(2) || reply.items[1].kind != Reply::Kind::integer) return std::nullopt;
  const std::string& host = reply.items[0].text;
  const bool unknown = host.empty() || host == "?";
  return announced(unknown ? asked.host : host, std::to_string(reply.items[1].integer));
}

void add(std::vector<NodeAddress>& nodes, const NodeAddress& node) {
  if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
}

}  // namespace

std::optional<Redirection> redirection_in(const Reply& reply) {
  if (!reply.is_error()) return std::nullopt;
  const std::string_view text = reply.text;
  const auto code = text.substr(0, text.find(' '));
  if (code == "MOVED") return redirection_to(Redirection::Kind::moved, text);
  if (code == "ASK") return redirection_to(Redirection::Kind::ask, text);
  for (const auto* later : {"TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN"}) {
    if (code == later) return Redirection{};
  }
  return std::nullopt;
}

std::string advice_on_a_cluster(const Reply& reply) {
  const auto redirection = redirection_in(reply);
  const bool is_of_a_cluster = redirection && redirection->kind != Redirection::Kind::later;
  return is_of_a_cluster ? "; a Cluster is named by redis+cluster://" : "";
}

int slot_of(std::string_view name) {
  const auto open = name.find('{');
  const auto close = open == std::string_view::npos ? open : name.find('}', open + 1);
  const bool tagged = close != std::string_view::npos && close > open + 1;
  return crc16(tagged ? name.substr(open + 1, close - open - 1) : name) % slot_count;
}

void SlotMap::learn(const Reply& reply, const NodeAddress& asked) {
  SlotMap told;
  if (reply.kind != Reply::Kind::array) no_map();
  for (const Reply& range : reply.items) {
    if (!range.is_array(3)) no_map();
    const auto master = node_in(range.items[2], asked);
    if (!master) no_map();
    told.ranges_.push_back({slot_in(range.items[0]), slot_in(range.items[1]), *master});
    add(told.nodes_, *master);
    // The map is usable without a replica whose address is impossible.
    for (std::size_t i = 3; i < range.items.size(); ++i) {
      if (const auto replica = node_in(range.items[i], asked)) add(told.nodes_, *replica);
    }
  }
  // A node that has forgotten the others knows less than this map.
  if (!told.ranges_.empty() || ranges_.empty()) *this = std::move(told);
}

std::optional<NodeAddress> SlotMap::owner(int slot) const {
  const auto moved = moved_.find(slot);
  if (moved != moved_.end()) return moved->second;
  for (const Range& range : ranges_) {
    if (range.first <= slot && slot <= range.last) return range.master;
  }
  return std::nullopt;
}

int SlotMap::unserved() const {
  int served = 0;
  for (const Range& range : ranges_) served += range.last - range.first + 1;
  return std::max(0, slot_count - served);
}

std::vector<NodeAddress> SlotMap::masters() const {
  std::vector<NodeAddress> masters;
  for (const Range& range : ranges_) add(masters, range.master);
  for (const auto& [slot, node] : moved_) add(masters, node);
  return masters;
}

}  // namespace dlock
