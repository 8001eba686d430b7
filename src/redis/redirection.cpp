#include "redis/redirection.hpp"

#include <string_view>

namespace dlock {
namespace {

/// `MOVED 3999 10.0.0.1:6381`: the last word, where IPv6 stands without brackets and a node that
/// does not know its own host leaves it out.
std::optional<NodeAddress> place_in(std::string_view text) {
  const auto place = text.substr(text.rfind(' ') + 1);
  const auto colon = place.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const bool same_host = colon == 0;
  auto to = announced(same_host ? "same" : place.substr(0, colon), place.substr(colon + 1));
  if (to && same_host) to->host.clear();
  return to;
}

Redirection to_place(Redirection::Kind kind, std::string_view text) {
  const auto to = place_in(text);
  return to ? Redirection{kind, *to} : Redirection{Redirection::Kind::nowhere, {}};
}

}  // namespace

std::optional<Redirection> redirection_in(const Reply& reply) {
  if (!reply.is_error()) return std::nullopt;
  const std::string_view text = reply.text;
  const auto code = text.substr(0, text.find(' '));
  if (code == "MOVED") return to_place(Redirection::Kind::moved, text);
  if (code == "ASK") return to_place(Redirection::Kind::ask, text);
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

}  // namespace dlock
